// Package wallet holds the bodies of the wallet's routes, and Client, which calls them and those of
// the ledger. A program that pays a node needs this package and package client:
//
//	c, err := client.New(client.Options{URL: "https://node.example:8080", Token: token})
//	…
//	paid, err := wallet.NewClient(c).Transfer(ctx, "order-7", wallet.Transfer{…})
//
// # Invariants
//
//  1. No engine and no server is linked into a program that imports it.
//  2. A repeated write with the same key and body gets the bytes of the first answer.
//  3. A member name of a body is never renamed.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package wallet
