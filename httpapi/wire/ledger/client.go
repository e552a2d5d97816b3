package ledger

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"ronbox/httpapi/client"
)

// Client calls the routes of the ledger, and those of the node that every service has.
type Client struct{ *client.Client }

// NewClient returns a client of the ledger routes over c.
func NewClient(c *client.Client) Client { return Client{c} }

// LedgerHead reads where the ledger ends.
func (c Client) LedgerHead(ctx context.Context) (LedgerHead, error) {
	return client.Ask[LedgerHead](ctx, c.Client, client.Call{Path: "/v1/ledger/head"})
}

// Roots lists batches after since, limit 0 for the node's own page.
func (c Client) Roots(ctx context.Context, since uint64, limit int) (Roots, error) {
	q := client.Query{}.Number("since", since).Page("", limit)
	return client.Ask[Roots](ctx, c.Client, client.Call{Path: "/v1/ledger/roots", Query: q})
}

// LedgerHorizon reads the end of the last closed period.
func (c Client) LedgerHorizon(ctx context.Context) (LedgerHorizon, error) {
	return client.Ask[LedgerHorizon](ctx, c.Client, client.Call{Path: "/v1/ledger/horizon"})
}

// LedgerPeriods lists closed periods after one.
func (c Client) LedgerPeriods(ctx context.Context, after uint64) (LedgerPeriods, error) {
	q := client.Query{}.Number("after", after)
	return client.Ask[LedgerPeriods](ctx, c.Client, client.Call{Path: "/v1/ledger/periods", Query: q})
}

// LedgerPeriod reads a closed period.
func (c Client) LedgerPeriod(ctx context.Context, n uint64) (LedgerPeriod, error) {
	return client.Ask[LedgerPeriod](ctx, c.Client, client.Call{Path: fmt.Sprintf("/v1/ledger/periods/%d", n)})
}

// Proof reads the proof that the ledger holds a record, as it was after the batch at, 0 for the
// newest. The bytes are as they were given: record.Proof reads and checks them.
func (c Client) Proof(ctx context.Context, id string, at uint64) ([]byte, error) {
	k := client.Call{Path: "/v1/tx/" + url.PathEscape(id) + "/proof", Query: client.Query{}.Number("at", at)}
	return client.Ask[[]byte](ctx, c.Client, k)
}

// Consistency reads the proof that the ledger as of batch to began as that of batch from. The bytes
// are as they were given: record.Consistency reads and checks them.
func (c Client) Consistency(ctx context.Context, from, to uint64) ([]byte, error) {
	q := client.Query{"from": {strconv.FormatUint(from, 10)}, "to": {strconv.FormatUint(to, 10)}}
	return client.Ask[[]byte](ctx, c.Client, client.Call{Path: "/v1/ledger/consistency", Query: q})
}

// ExportLedger calls each for every line of the export, without its newline; the line is valid
// until each returns. It exports the records from one to another, 0 for the newest; with follow it
// continues with new records. It ends as client.Export does: continue after the last batch.
func (c Client) ExportLedger(ctx context.Context, from, to uint64, follow bool, each func(line []byte) error) error {
	q := client.Query{}.Number("from_seq", from).Number("to_seq", to)
	if follow {
		q.Text("follow", "1")
	}
	return c.Export(ctx, client.Call{Path: "/v1/ledger/export", Query: q}, each)
}
