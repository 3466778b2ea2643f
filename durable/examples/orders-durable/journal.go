package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// journal is the shop's record of its orders: a file to which all processes append lines, and which none changes. It stands for the
// table of orders that a real shop has in its database. An order is what the lines about it say, by the rule of [book.apply]: who
// wants to know whether his line has had an effect reads the file up to it.
//
// So an effect is one line, which is there or is not, whenever a process is killed. A journal that is to outlive the machine would also be
// synced before a message is acknowledged.
type journal struct {
	mu   sync.Mutex
	file *os.File
	read int64 // up to where the file was applied: the end of a line
	book book
}

// entry is a line.
type entry struct {
	Kind  kind      `json:"kind"`
	Order string    `json:"order"`
	At    time.Time `json:"at"`
	Token uint64    `json:"token,omitempty"` // of the delivery
}

type kind string

const (
	placed    kind = "placed"
	paid      kind = "paid"
	delivered kind = "delivered" // the order's message, to a consumer
	cancelled kind = "cancelled"
)

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return &journal{file: f, book: book{orders: make(map[string]*order)}}, nil
}

func (j *journal) close() error { return j.file.Close() }

// write appends a line, and returns the order as it is then.
func (j *journal) write(k kind, id string, token uint64) (order, error) {
	return j.append(entry{Kind: k, Order: id, At: time.Now(), Token: token})
}

func (j *journal) append(e entry) (order, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return order{}, fmt.Errorf("journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	// It begins with a newline, too: whoever was killed half-way through a line must not spoil the next one.
	if _, err := j.file.Write(append(append([]byte{'\n'}, line...), '\n')); err != nil {
		return order{}, fmt.Errorf("journal: %w", err)
	}
	if err := j.catchUp(); err != nil {
		return order{}, err
	}
	return *j.book.orders[e.Order], nil
}

// undecided is the number of orders that are neither paid nor cancelled.
func (j *journal) undecided() (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.catchUp()
	return len(j.book.orders) - j.book.decided, err
}

// catchUp applies what has been appended, by whomever, since it was called last. mu is held.
func (j *journal) catchUp() error {
	news, err := io.ReadAll(io.NewSectionReader(j.file, j.read, 1<<62-j.read))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	end := bytes.LastIndexByte(news, '\n') + 1 // what follows is being written
	for line := range bytes.Lines(news[:end]) {
		j.book.read(bytes.TrimSpace(line))
	}
	j.read += int64(end)
	return nil
}

// book is the orders as the journal tells of them.
type book struct {
	orders  map[string]*order
	decided int
	torn    int // lines that were cut off by a kill
}

type order struct {
	placed     time.Time
	decision   kind // paid, cancelled, or empty: none yet
	decidedAt  time.Time
	token      uint64    // the highest of its deliveries
	deliveries int       // all of them
	first      time.Time // the first of them
	unwanted   int       // deliveries after it was paid
	sameToken  int       // deliveries with the token of the one before
	void       int       // cancellations that came too late to count
}

func (b *book) read(line []byte) {
	if len(line) == 0 {
		return
	}
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		b.torn++
		return
	}
	b.apply(e)
}

// apply is the rule: the first decision about an order counts, and all others about it are void. So it does not matter how often a
// cancellation is repeated, and a payment and a cancellation never both count.
//
// A cancellation by a consumer that does not have the message any more is void as well: a token that is lower than another one
// that was seen is that of a process that was stopped for longer than its lease.
func (b *book) apply(e entry) {
	o := b.orders[e.Order]
	if o == nil {
		o = &order{}
		b.orders[e.Order] = o
	}
	switch e.Kind {
	case placed:
		o.placed = e.At
	case delivered:
		o.deliver(e)
	case cancelled:
		if o.decision != "" || e.Token < o.token {
			o.void++
			return
		}
		b.decide(o, e)
	case paid:
		if o.decision == "" {
			b.decide(o, e)
		}
	}
}

func (b *book) decide(o *order, e entry) {
	o.decision, o.decidedAt = e.Kind, e.At
	b.decided++
}

func (o *order) deliver(e entry) {
	if o.deliveries == 0 || e.At.Before(o.first) {
		o.first = e.At
	}
	if o.deliveries > 0 && e.Token == o.token {
		o.sameToken++
	}
	if o.decision == paid {
		o.unwanted++
	}
	o.deliveries++
	o.token = max(o.token, e.Token)
}

// readBook reads a journal from its beginning.
func readBook(path string) (b book, err error) {
	j, err := openJournal(path)
	if err != nil {
		return book{}, err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	_, err = j.undecided()
	return j.book, err
}
