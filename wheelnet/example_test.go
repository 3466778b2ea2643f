package wheelnet_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/wheelnet"
)

// A server times out a read after 50 ms.
func ExampleListener() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()

	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		panic(err)
	}
	defer client.Close() // it never sends anything

	c, err := wheelnet.Listener(l, tw).Accept()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err = c.Read(make([]byte, 64))
	fmt.Println("timed out:", errors.Is(err, os.ErrDeadlineExceeded))
	// Output: timed out: true
}

// An HTTP client whose connections use the default wheel.
func ExampleDialer() {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()

	dialer := wheelnet.Dialer{Dialer: net.Dialer{Timeout: 5 * time.Second}}
	client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	defer client.CloseIdleConnections()
	response, err := client.Get(server.URL)
	if err != nil {
		panic(err)
	}
	response.Body.Close()
	fmt.Println(response.Status)
	// Output: 404 Not Found
}

// Conn wraps a connection that exists already.
func ExampleConn() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()
	ours, theirs := net.Pipe()
	defer theirs.Close()

	c := wheelnet.Conn(ours, tw)
	defer c.Close()
	c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	_, err = c.Write([]byte("the other end does not read"))
	fmt.Println(err)
	// Output: write pipe: i/o timeout
}
