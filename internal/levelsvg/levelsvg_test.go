package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommittedPictureIsWhatThisProgramDraws(t *testing.T) {
	committed, err := os.ReadFile("../../docs/levels.svg")
	require.NoError(t, err)
	assert.Equal(t, string(committed), picture(), "run: go run ./internal/levelsvg > docs/levels.svg")
}

func TestPictureIsWellFormed(t *testing.T) {
	decoder := xml.NewDecoder(strings.NewReader(picture()))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok {
			assert.NotContains(t, []string{"script", "image", "foreignObject"}, start.Name.Local,
				"an image in a README must neither run nor load anything")
		}
	}
}

func TestExampleTimerMovesDownOneLevelAtATime(t *testing.T) {
	at := armed
	for level := levels - 1; level >= 0; level-- {
		assert.Equal(t, level, levelOf(deadline, at), "seen from tick %d", at)
		at = expiration(deadline, level)
	}
	assert.Equal(t, deadline, at, "the last bucket expires at the deadline")
	assert.Equal(t, 0, levelOf(deadline, now), "the picture must show the wheel after the last move")
}

func TestQueueIsAHeap(t *testing.T) {
	buckets := queue()
	require.LessOrEqual(t, len(buckets), len(heapPlaces(0)), "each bucket needs a node")
	assert.Equal(t, deadline, buckets[0].due, "the example timer must be next")
	for i := range buckets {
		assert.LessOrEqual(t, buckets[(i-1)/2].due, buckets[i].due)
	}
}
