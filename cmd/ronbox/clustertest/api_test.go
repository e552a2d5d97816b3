package clustertest

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"ronbox/cmd/ronbox/namestest"
	"ronbox/httpapi/client"
	indexapi "ronbox/httpapi/wire/index"
	walletapi "ronbox/httpapi/wire/wallet"
)

// nodes are the services of real nodes, which all take one token.
type nodes struct {
	wallets []walletapi.Client
	indexes []indexapi.Client
}

// newService returns clients of nodes.
func newService(t testing.TB, token string, all ...*node) *nodes {
	t.Helper()
	s := &nodes{}
	for _, n := range all {
		c := n.client(t, token, askWithin)
		s.wallets = append(s.wallets, walletapi.NewClient(c))
		s.indexes = append(s.indexes, indexapi.NewClient(c))
	}
	return s
}

// till returns the name of an account of the bank.
func till(i int) string { return fmt.Sprint("till", i) }

func (s *nodes) places() int { return len(s.wallets) }

func (s *nodes) transfer(ctx context.Context, place int, key string, in bankIn) (posted, verdict, error) {
	got, err := s.wallets[place].Transfer(ctx, key, walletapi.Transfer{
		From: till(in.from), To: till(in.to), Asset: "ron", AmountMinor: strconv.FormatUint(in.amount, 10),
	})
	return posted{got.Raw, got.Receipt.Ledger.Seq, got.Replayed}, verdictOf(err, "insufficient_funds"), err
}

func (s *nodes) balance(ctx context.Context, place int, account int) (amount, seq uint64, err error) {
	got, err := s.wallets[place].Balance(ctx, till(account), "ron", 0)
	if err != nil {
		return 0, 0, err
	}
	amount, err = strconv.ParseUint(got.PostedMinor, 10, 64)
	return amount, got.AsOfSeq, err
}

func (s *nodes) name(
	ctx context.Context,
	place int,
	key string,
	in namestest.In,
) (out namestest.Out, v verdict, err error) {
	out, err = namestest.Ask(ctx, s.indexes[place], key, in)
	return out, verdictOf(err, ""), err
}

// ready reports whether a node is ready for reads and writes.
func ready(ctx context.Context, c *client.Client) bool {
	r, err := c.Ready(ctx, "", "write")
	return err == nil && r.Ready
}
