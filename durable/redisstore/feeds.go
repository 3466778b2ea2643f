package redisstore

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// feeds subscribes to the channels of hints. The channels of shards are subscribed to at the nodes that have their slots, each by a command of
// its own, as one command is for one slot. A Ring gives hints on the shard that has the channel.
func (b *backend) feeds(ctx context.Context) ([]*redis.PubSub, error) {
	switch client := b.store.client.(type) {
	case *redis.ClusterClient:
		if b.publish == "SPUBLISH" {
			return b.shardFeeds(ctx, client)
		}
	case *redis.Ring:
		var feeds []*redis.PubSub
		for _, p := range b.partitions {
			feeds = append(feeds, client.Subscribe(ctx, p.channel))
		}
		return feeds, nil
	}
	channels := make([]string, len(b.partitions))
	for i, p := range b.partitions {
		channels[i] = p.channel
	}
	return []*redis.PubSub{b.store.client.Subscribe(ctx, channels...)}, nil
}

// shardFeeds has one subscription for each node.
func (b *backend) shardFeeds(ctx context.Context, client *redis.ClusterClient) (feeds []*redis.PubSub, err error) {
	client.ReloadState(ctx) // in the background; a slot may have moved since the last time
	nodes := make(map[*redis.Client]*redis.PubSub)
	defer func() {
		if err != nil {
			for _, f := range nodes {
				_ = f.Close()
			}
		}
	}()
	for _, p := range b.partitions {
		node, err := client.MasterForKey(ctx, p.channel)
		if err != nil {
			return nil, err
		}
		feed := nodes[node]
		if feed == nil {
			feed = node.Subscribe(ctx)
			nodes[node] = feed
			feeds = append(feeds, feed)
		}
		if err := feed.SSubscribe(ctx, p.channel); err != nil {
			return nil, err
		}
	}
	return feeds, nil
}

// byChannel are the partitions by their channels.
func (b *backend) byChannel() map[string]int {
	partitions := make(map[string]int, len(b.partitions))
	for i, p := range b.partitions {
		partitions[p.channel] = i
	}
	return partitions
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
