// Command pay pays with the token in RONBOX_TOKEN: pay URL FROM TO MINOR KEY. The same key pays once.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire/wallet"
)

func main() {
	c, err := client.New(client.Options{URL: os.Args[1], Token: os.Getenv("RONBOX_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	order := wallet.Transfer{From: os.Args[2], To: os.Args[3], Asset: "ron", AmountMinor: os.Args[4]}
	paid, err := wallet.NewClient(c).Transfer(context.Background(), os.Args[5], order)
	if err != nil {
		log.Fatal(err) // if client.Retryable(err), try again with the same key
	}
	fmt.Println(paid.Receipt.TxID)
}
