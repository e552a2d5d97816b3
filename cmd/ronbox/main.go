package main

import (
	"context"
	"os"

	"ronbox/cmd/ronbox/cli"
	_ "ronbox/cmd/ronbox/hangup" // ignores SIGHUP until serve can reload
)

func main() {
	a := cli.New(os.Stdin, os.Stdout, os.Stderr, build())
	os.Exit(a.Run(context.Background(), root(a), os.Args[1:]))
}
