// Command postgres-service answers the wallet's transfers and batches over HTTP, written on PostgreSQL as one would write it who has no
// ronbox: net/http, a pool of connections, prepared statements, and one function call in the database, so one round trip, a request. It
// is what the wallet is measured against, and therefore as fast as is fair to it: names of accounts are numbers behind "acct/", so that
// none is looked up; nonces are given by the database and not by the payer, whose requests would else wait for each other; and there are
// no proofs, no rate limits and no metrics.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// tokenVariable names the environment's variable with the token that callers must have.
const tokenVariable = "SERVICE_TOKEN"

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to serve on; it is printed once the service answers")
	db := flag.String("db", "", "connection `string` of the database, which has the schema")
	pool := flag.Int("pool", 64, "connections to the database")
	flag.Parse()
	if err := run(*listen, *db, int32(*pool), os.Getenv(tokenVariable)); err != nil {
		log.Fatal(err)
	}
}

// run serves until it is told to stop.
func run(listen, db string, size int32, token string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if token == "" {
		return errors.New(tokenVariable + " is empty: set it to the token that callers must have")
	}
	cfg, err := pgxpool.ParseConfig(db)
	if err != nil {
		return fmt.Errorf("-db: %w", err)
	}
	cfg.MaxConns, cfg.MinConns = size, size
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pool.Ping(ctx); err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: newService(pool, token), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	fmt.Println(l.Addr())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
