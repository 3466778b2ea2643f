package wheelnet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// An HTTP server keeps its deadlines on a wheel. Here it closes a connection whose request does not
// arrive in time. When the program ends, the server stops before the wheel.
func ExampleListener_httpServer() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()
	l, err := net.Listen("tcp", "localhost:0") // a program uses a fixed port
	if err != nil {
		panic(err)
	}
	server := http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }),
		ReadHeaderTimeout: 500 * time.Millisecond,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(wheelnet.Listener(l, tw)) }() // instead of server.Serve(l)

	response, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		panic(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	fmt.Println(string(body), err)

	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		panic(err)
	}
	defer silent.Close()
	_, err = silent.Read(make([]byte, 1))
	fmt.Println("silent client:", err)

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	fmt.Println("shut down:", server.Shutdown(ctx))
	fmt.Println(<-served)
	// Output:
	// hello <nil>
	// silent client: EOF
	// shut down: <nil>
	// http: Server closed
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
