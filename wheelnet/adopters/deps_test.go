package adopters

import (
	_ "github.com/jackc/pgx/v5"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/valyala/fasthttp"
	_ "google.golang.org/grpc"
)
