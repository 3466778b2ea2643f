package adopters_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/wheelnet"
)

// A net/http server and client. Only the listener and the dialer change. The server sets several
// deadlines for each request. The client gains nothing: http.Client.Timeout and the timeouts of
// http.Transport are timers, so the client sets no deadlines of its own.
func Example_http() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tw.Stop()

	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }),
		ReadHeaderTimeout: 100 * time.Millisecond,
		ReadTimeout:       time.Second,
		WriteTimeout:      time.Second,
		IdleTimeout:       time.Minute,
	}
	go server.Serve(wheelnet.Listener(l, tw)) // instead of server.Serve(l)
	defer server.Close()

	dialer := &wheelnet.Dialer{Wheel: tw} // instead of &net.Dialer{}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}, Timeout: time.Minute}
	response, err := client.Get("http://" + l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	fmt.Println("client:", string(body), err)

	silent, err := dialer.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer silent.Close()
	_, err = silent.Read(make([]byte, 1))
	fmt.Println("silent peer:", err)
	// Output:
	// client: hello <nil>
	// silent peer: EOF
}

// A fasthttp server. Only the listener changes. The server sets three deadlines for each request.
func Example_fasthttp() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tw.Stop()

	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &fasthttp.Server{
		Handler:      func(ctx *fasthttp.RequestCtx) { ctx.WriteString("hello") },
		ReadTimeout:  100 * time.Millisecond,
		WriteTimeout: time.Second,
		IdleTimeout:  100 * time.Millisecond,
	}
	go server.Serve(wheelnet.Listener(l, tw)) // instead of server.Serve(l)
	defer server.Shutdown()

	status, body, err := fasthttp.Get(nil, "http://"+l.Addr().String())
	fmt.Println("client:", status, string(body), err)

	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer silent.Close()
	response := make([]byte, 100)
	n, err := silent.Read(response)
	fmt.Printf("silent peer: %.28s %v\n", response[:n], err)
	// Output:
	// client: 200 hello <nil>
	// silent peer: HTTP/1.1 408 Request Timeout <nil>
}

// A gRPC server and client. Only the listener and the dialer change. There is little to gain: gRPC
// sets one deadline for each connection, for the handshake, and its other timeouts are timers.
// There is also a cost: gRPC pools read buffers and sets TCP_USER_TIMEOUT only if the connection is
// not wrapped. So each idle connection keeps its read buffer of 32 KiB. To set TCP_USER_TIMEOUT,
// use the Control functions of net.ListenConfig and net.Dialer.
func Example_grpc() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tw.Stop()

	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ConnectionTimeout(100 * time.Millisecond))
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(wheelnet.Listener(l, tw)) // instead of server.Serve(l)
	defer server.Stop()

	dialer := &wheelnet.Dialer{Wheel: tw}
	client, err := grpc.NewClient("passthrough:"+l.Addr().String(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	response, err := healthpb.NewHealthClient(client).Check(context.Background(), new(healthpb.HealthCheckRequest))
	fmt.Println("client:", response.GetStatus(), err)

	silent, err := dialer.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer silent.Close()
	_, err = io.Copy(io.Discard, silent)
	fmt.Println("silent peer is cut:", err)
	// Output:
	// client: SERVING <nil>
	// silent peer is cut: <nil>
}

// A Redis client. Only the dialer changes. The client sets a deadline before it writes a command
// and another before it reads the reply. Both are times without a monotonic reading, so wheelnet
// reads the clock for each, as package net does. For TLS, wrap the connection in tls.Client.
func Example_redis() {
	redisServer, err := miniredis.Run() // in place of a Redis server
	if err != nil {
		log.Fatal(err)
	}
	defer redisServer.Close()

	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tw.Stop()

	dialer := &wheelnet.Dialer{Dialer: net.Dialer{Timeout: 5 * time.Second}, Wheel: tw}
	client := redis.NewClient(&redis.Options{
		Addr:         redisServer.Addr(),
		Dialer:       dialer.DialContext,
		ReadTimeout:  time.Second,
		WriteTimeout: time.Second,
	})
	defer client.Close()
	reply, err := client.Echo(context.Background(), "hello").Result()
	fmt.Println(reply, err)

	silent, err := net.Listen("tcp", "localhost:0") // never answers
	if err != nil {
		log.Fatal(err)
	}
	defer silent.Close()
	lost := redis.NewClient(&redis.Options{
		Addr:        silent.Addr().String(),
		Dialer:      dialer.DialContext,
		ReadTimeout: 100 * time.Millisecond,
		MaxRetries:  -1,
	})
	defer lost.Close()
	_, err = lost.Echo(context.Background(), "hello").Result()
	var ne net.Error
	fmt.Println("silent server: timeout is", errors.As(err, &ne) && ne.Timeout())
	// Output:
	// hello <nil>
	// silent server: timeout is true
}

// A PostgreSQL client. Only the dialer changes. For a pgxpool, set Config.ConnConfig.DialFunc. The
// dialer gains little, because pgx sets a deadline only when a context ends. The timers of those
// contexts can be on the wheel: use TimingWheel.WithTimeout. The example needs a server, so it is
// only compiled.
func Example_pgx() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tw.Stop()

	config, err := pgx.ParseConfig("postgres:///shop")
	if err != nil {
		log.Fatal(err)
	}
	dialer := &wheelnet.Dialer{Dialer: net.Dialer{KeepAlive: 5 * time.Minute}, Wheel: tw}
	config.DialFunc = dialer.DialContext

	ctx, cancel := tw.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(context.Background())
	var orders int
	err = conn.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&orders)
	if pgconn.Timeout(err) {
		log.Fatal("no answer within 5 s")
	}
	fmt.Println(orders, err)
}
