package ledger

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
	ledgerapi "ronbox/httpapi/wire/ledger"
)

// Reader reads the ledger as a whole.
type Reader interface {
	Roots(ctx context.Context, by engines.Actor, since uint64, n int) ([]record.Batch, error)
	Head(ctx context.Context, by engines.Actor) (record.Head, error)
	Proof(ctx context.Context, by engines.Actor, id record.TxID, at uint64) (record.Proof, error)
	Consistency(ctx context.Context, by engines.Actor, from, to uint64) (record.Consistency, error)
}

// Feed exports the ledger's records.
type Feed interface {
	Head(ctx context.Context, by engines.Actor) (record.Head, error)
	Export(ctx context.Context, by engines.Actor, from, to uint64, fn func(record.Line) error) error
	Events(consumer string) *flow.Subscription[ledger.Committed]
}

// Engine is the interface of the routes to the ledger.
type Engine interface {
	Reader
	Feed
}

const (
	prefix      = "/v1/"
	scopeRead   = "wallet.read"
	scopeExport = "ledger.export"

	paramTx = "txid"
)

// handlers serve the routes of the ledger.
type handlers struct{ led Engine }

// Routes returns the routes of the ledger, which belong to the wallet's service.
func Routes(e Engine) []httpapi.Route {
	h := handlers{e}
	number := func(name, doc string) openapi.Param { return openapi.Number(name, doc, httpapi.MaxNumber) }
	needed := func(name, doc string) openapi.Param {
		p := number(name, doc)
		p.Required = true
		return p
	}
	return append(httpapi.Routes(
		Read,
		httpapi.Route{
			Pattern: "ledger/head",
			Handle:  h.getHead,
			ID:      "getLedgerHead",
			Summary: "The head of the ledger",
			Answers: ok(ledgerapi.LedgerHead{}),
		},
		httpapi.Route{
			Pattern: "ledger/roots",
			Handle:  h.getRoots,
			ID:      "listLedgerRoots",
			Summary: "Roots of the ledger's batches, oldest first",
			Answers: ok(ledgerapi.Roots{}),
			Query: []openapi.Param{
				number("since", "the batch before the first"),
				openapi.Number("limit", "rows of a page", ledger.MaxRoots),
			},
		},
		httpapi.Route{
			Pattern:  "tx/:txid/proof",
			Handle:   h.getProof,
			ID:       "proveTransaction",
			Summary:  "Proof that a record is in the ledger",
			Answers:  ok(ledgerapi.Proof{}),
			Query:    []openapi.Param{number("at", "the batch after which the log is shown; absent: the newest")},
			Problems: []int{http.StatusNotFound},
		},
		httpapi.Route{
			Pattern: "ledger/consistency",
			Handle:  h.getConsistency,
			ID:      "proveLedgerConsistency",
			Summary: "Proof that a later state of the ledger extends an earlier one",
			Answers: ok(ledgerapi.Consistency{}),
			Query:   []openapi.Param{needed("from", "the earlier batch"), needed("to", "the later batch")},
		},
	), httpapi.Route{ // it has a scope of its own, since it shows every account
		Method:   http.MethodGet,
		Pattern:  prefix + "ledger/export",
		Handle:   h.getExport,
		Scope:    scopeExport,
		Class:    httpapi.ClassStream,
		Endpoint: "export",
		ID:       "exportLedger",
		Summary:  "Export of the records of the ledger",
		Query: []openapi.Param{
			number("from_seq", "the first record, at most the one after the newest"),
			number("to_seq", "the last record, by default the newest"),
			{Name: "follow", Doc: "1: also send new records as they are committed", Enum: []string{"0", "1"}},
		},
		Answers: []openapi.Answer{
			{
				Status: http.StatusOK,
				Type:   httpapi.TypeLines,
				Body:   jsontext.Value(nil),
				Doc: "a line with the format, then each record, and each batch after its last record; " +
					"a line {\"problem\": …} if the export ends early; with follow an empty line, which the reader " +
					"skips, after 15 s without a commit (registry.sse.ping)",
			},
		},
	})
}

// Read sets the common properties of the read routes under /v1.
func Read(r *httpapi.Route) {
	r.Method, r.Pattern, r.Class = http.MethodGet, prefix+r.Pattern, httpapi.ClassRead
	if r.AnyOf == nil {
		r.Scope = scopeRead
	}
	r.Deadline, r.Endpoint = httpapi.DefaultDeadline, httpapi.EndpointRead
}

func ok(body any) []openapi.Answer { return httpapi.Answers(http.StatusOK, body) }

// Param is the txid in a path.
func Param() httpapi.PathParam {
	return httpapi.PathParam{
		Param: openapi.Param{Name: paramTx, Doc: "of a receipt", Pattern: "^tx_[0-7][0-9A-HJKMNP-TV-Z]{25}$"},
		Check: isTx,
		Wrong: `must be "tx_" and the 26 characters of a ULID, in capitals`,
	}
}

// isTx reports whether s is "tx_" and a ULID.
func isTx(s string) bool {
	id, ok := strings.CutPrefix(s, "tx_")
	return ok && httpapi.IsULID(id)
}

// TxParam returns the txid of a request. The router has checked its form.
func TxParam(c *httpapi.Request) record.TxID {
	id, _ := record.ParseTxID(c.Param(paramTx))
	return id
}

// Instant is a time of the ledger as answers have it: to the millisecond, as on receipts.
func Instant(ns int64) wire.Instant {
	return wire.Instant{Time: time.Unix(0, ns).UTC().Truncate(time.Millisecond)}
}

const rootsPage = 100 // headers, if the request has no limit

// getRoots serves GET /v1/ledger/roots.
func (h handlers) getRoots(c *httpapi.Request) error {
	since, err := c.Number("since", 0, 1, httpapi.MaxNumber)
	if err != nil {
		return err
	}
	limit, err := c.Number("limit", rootsPage, 1, ledger.MaxRoots)
	if err != nil {
		return err
	}
	all, err := h.led.Roots(c.Context(), c.Actor(), since, int(limit))
	if err != nil {
		return err
	}
	out := ledgerapi.Roots{Roots: make([]ledgerapi.Root, len(all))}
	for i := range all {
		b := &all[i]
		out.Roots[i] = ledgerapi.Root{Batch: b.No, Seq: b.Last(), Root: b.Root().String(), TS: Instant(b.At)}
	}
	if len(all) == int(limit) {
		out.Next = all[len(all)-1].No
	}
	return c.Respond(http.StatusOK, out)
}

// getHead serves GET /v1/ledger/head.
func (h handlers) getHead(c *httpapi.Request) error {
	at, err := h.led.Head(c.Context(), c.Actor())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, ledgerapi.LedgerHead{
		Batches: at.Batches, LogRoot: at.Root.String(), LastRoot: at.LastRoot.String(), Seq: at.Seq,
	})
}

// getProof serves GET /v1/tx/:txid/proof.
func (h handlers) getProof(c *httpapi.Request) error {
	at, err := c.Number("at", 0, 1, httpapi.MaxNumber)
	if err != nil {
		return err
	}
	p, err := h.led.Proof(c.Context(), c.Actor(), TxParam(c), at)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, &p)
}

// getConsistency serves GET /v1/ledger/consistency.
func (h handlers) getConsistency(c *httpapi.Request) error {
	from, err := c.RequiredNumber("from", httpapi.MaxNumber)
	if err != nil {
		return err
	}
	to, err := c.RequiredNumber("to", httpapi.MaxNumber)
	switch {
	case err != nil:
		return err
	case to < from:
		return httpapi.BadQuery("to", "must not be before from")
	}
	p, err := h.led.Consistency(c.Context(), c.Actor(), from, to)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, &p)
}

// consumerExport is the name of an export on the ledger's bus.
const consumerExport = "export"

// exporter is one client of the ledger's export, fed by the goroutine of its connection.
type exporter struct {
	*httpapi.Export
	led  Engine
	c    *httpapi.Request
	next uint64 // the record to give next
	to   uint64 // the last one to give, 0 for no end

	begun bool // a line was given
}

// getExport serves GET /v1/ledger/export. It reads in slices, so a slow client holds up nothing.
func (h handlers) getExport(c *httpapi.Request) error {
	e := &exporter{led: h.led, c: c}
	if err := e.query(); err != nil {
		return err
	}
	return c.Export(e.run)
}

// query parses the query.
func (e *exporter) query() (err error) {
	if v := e.c.Query().Get("follow"); e.c.Query().Has("follow") && v != "0" && v != "1" {
		return httpapi.BadQuery("follow", "must be 0 or 1")
	}
	if e.next, err = e.c.Number("from_seq", 1, 1, httpapi.MaxNumber); err != nil {
		return err
	}
	e.to, err = e.c.Number("to_seq", 0, 1, httpapi.MaxNumber)
	if err == nil && e.to != 0 && e.to < e.next {
		return httpapi.BadQuery("to_seq", "must not be before from_seq")
	}
	return err
}

// run writes the existing records and then the new ones, up to the requested end.
func (e *exporter) run(out *httpapi.Export) error {
	e.Export = out
	if e.c.Query().Get("follow") != "1" {
		return e.slice()
	}
	sub := e.led.Events(consumerExport) // before the first read: later commits are on it
	defer sub.Close()
	for {
		if err := e.slice(); err != nil {
			return err
		}
		if e.to != 0 && e.next > e.to {
			return nil
		}
		if err := httpapi.Await(out, sub, func(c ledger.Committed) bool { return c.Last >= e.next }); err != nil {
			return err
		}
	}
}

// slice writes all records from the next to the newest. The first call asks the ledger even if
// there are no records: for the first line, and to check the range.
func (e *exporter) slice() error {
	head, err := e.led.Head(e.c.Context(), e.c.Actor())
	if err != nil {
		return err
	}
	to := head.Seq
	if e.to != 0 {
		to = min(to, e.to)
	}
	if e.begun && e.next > to {
		return nil
	}
	if err := e.led.Export(e.c.Context(), e.c.Actor(), e.next, to, e.line); err != nil {
		return err
	}
	return e.Flush()
}

func (e *exporter) line(l record.Line) error {
	switch l.Kind {
	case record.LineFormat:
		if e.begun {
			return nil // one is enough, however many reads it takes
		}
	case record.LineRecord:
		e.next = l.Record.Seq + 1
	}
	e.begun = true
	return e.Line(l.Append)
}
