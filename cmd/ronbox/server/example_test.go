package server_test

import (
	"context"
	"fmt"
	"os"

	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire/index"
	"ronbox/httpapi/wire/node"
	"ronbox/httpapi/wire/wallet"
)

// A whole node in one process: made in a temporary directory, served on a free port, asked over
// HTTP, and drained.
func Example() {
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	cfg := config.Default()
	cfg.Node.DataDir, cfg.Server.Bind, cfg.Log.Level = dir+"/data", "127.0.0.1:0", "off"
	ctx := context.Background()
	made, err := server.Init(ctx, cfg, initdir.Options{Dev: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := server.New(cfg, server.Build{Version: "example"}, server.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	up := make(chan node.Status, 1)
	n.OnRunning(func(s node.Status) { up <- s })
	running, stop := context.WithCancel(ctx)
	ended := make(chan int, 1)
	go func() { ended <- n.Run(running) }()
	if err := use(ctx, (<-up).URL, made.TokenFile); err != nil {
		fmt.Println(err)
	}
	stop()
	fmt.Println("exit", <-ended)
	// Output:
	// alice pays bob 1200, nonce 1
	// the same key again: replayed true, nonce 1
	// bob has 1200
	// name:docs.example stands for b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262
	// exit 0
}

// use pays twice under one key, reads a balance, and puts and resolves a name.
func use(ctx context.Context, url, tokenFile string) error {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return err
	}
	c, err := client.New(client.Options{URL: url, Token: string(token[:len(token)-1])})
	if err != nil {
		return err
	}
	defer c.Close()
	money, names := wallet.NewClient(c), index.NewClient(c)
	rent := wallet.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "1200"}
	first, err := money.Transfer(ctx, "rent-2026-11", rent)
	if err != nil {
		return err
	}
	fmt.Println("alice pays bob 1200, nonce", first.Receipt.Nonce)
	again, err := money.Transfer(ctx, "rent-2026-11", rent)
	if err != nil {
		return err
	}
	fmt.Printf("the same key again: replayed %t, nonce %d\n", again.Replayed, again.Receipt.Nonce)
	balance, err := money.Balance(ctx, "bob", "ron", 0)
	if err != nil {
		return err
	}
	fmt.Println("bob has", balance.AmountMinor)
	const empty = "b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
	if _, err := names.Put(ctx, "name:docs.example", empty); err != nil {
		return err
	}
	found, err := names.Resolve(ctx, "name:docs.example", false)
	if err != nil {
		return err
	}
	fmt.Println(found.Key, "stands for", found.Manifest)
	return nil
}
