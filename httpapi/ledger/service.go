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
	PeriodReader
}

const (
	prefix      = "/v1/"
	scopeRead   = "wallet.read"
	scopeExport = "ledger.export"

	paramTx     = "txid"
	paramPeriod = "period"
)

// handlers serve the routes of the ledger.
type handlers struct{ led Engine }

// Routes returns the routes of the ledger, which belong to the wallet's service.
func Routes(e Engine) []httpapi.Route {
	h := handlers{e}
	return append(append(h.periodRoutes(), httpapi.Routes(
		Read,
		httpapi.Route{
			Pattern: "ledger/head",
			Handle:  h.getHead,
			ID:      "getLedgerHead",
			Summary: "The head of the ledger",
			Answers: ok(ledgerapi.LedgerHead{}),
		},
		httpapi.Route{
			Pattern:  "ledger/roots",
			Handle:   h.getRoots,
			ID:       "listLedgerRoots",
			Summary:  "Roots of the ledger's batches, oldest first",
			Answers:  ok(ledgerapi.Roots{}),
			Problems: []int{http.StatusGone},
			Query:    httpapi.Params(rootsSince, rootsLimit),
		},
		httpapi.Route{
			Pattern:  "tx/:txid/proof",
			Handle:   h.getProof,
			ID:       "proveTransaction",
			Summary:  "Proof that a record is in the ledger",
			Answers:  ok(ledgerapi.Proof{}),
			Query:    httpapi.Params(proofAt),
			Problems: []int{http.StatusNotFound, http.StatusGone},
		},
		httpapi.Route{
			Pattern:  "ledger/consistency",
			Handle:   h.getConsistency,
			ID:       "proveLedgerConsistency",
			Summary:  "Proof that a later state of the ledger extends an earlier one",
			Answers:  ok(ledgerapi.Consistency{}),
			Problems: []int{http.StatusGone},
			Query:    httpapi.Params(earlier, later),
		},
	)...), httpapi.Route{ // it has a scope of its own, since it shows every account
		Method:   http.MethodGet,
		Pattern:  prefix + "ledger/export",
		Handle:   h.getExport,
		Scope:    scopeExport,
		Class:    httpapi.ClassStream,
		Endpoint: "export",
		ID:       "exportLedger",
		Summary:  "Export of the records of the ledger",
		Query:    httpapi.Params(exportFrom, exportTo, exportFollow),
		Problems: []int{http.StatusGone},
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
func Read(r *httpapi.Route) { httpapi.Read(prefix, scopeRead)(r) }

func ok(body any) []openapi.Answer { return httpapi.Answers(http.StatusOK, body) }

// Params are the txid and the period in a path.
func Params() []httpapi.PathParam {
	return []httpapi.PathParam{
		{
			Param: openapi.Param{Name: paramTx, Doc: "of a receipt", Pattern: "^tx_[0-7][0-9A-HJKMNP-TV-Z]{25}$"},
			Check: isTx,
			Wrong: `must be "tx_" and the 26 characters of a ULID, in capitals`,
		},
		httpapi.NumberParam(paramPeriod, 1, "a number from 1"),
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

// Query parameters.
var (
	rootsSince = number("since", 0, "the batch before the first")
	rootsLimit = httpapi.Number("limit", rootsPage, 1, ledger.MaxRoots, "rows of a page")
	proofAt    = number("at", 0, "the batch after which the log is shown; absent: the newest")

	earlier = number("from", 0, "the earlier batch").Required()
	later   = number("to", 0, "the later batch").Required()

	exportFrom   = number("from_seq", 1, "the first record, at most the one after the newest")
	exportTo     = number("to_seq", 0, "the last record, by default the newest")
	exportFollow = httpapi.Flag("follow", false, "1: also send new records as they are committed")
)

// number declares the number of a batch or a record, from 1.
func number(name string, fallback uint64, doc string) *httpapi.Parameter[uint64] {
	return httpapi.Number(name, fallback, 1, httpapi.MaxNumber, doc)
}

// getRoots serves GET /v1/ledger/roots.
func (h handlers) getRoots(c *httpapi.Request) error {
	since, err := rootsSince.Of(c)
	if err != nil {
		return err
	}
	limit, err := rootsLimit.Of(c)
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
	if len(all) > 0 && all[0].No != since+1 {
		out.FirstBatch = all[0].No
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
	at, err := proofAt.Of(c)
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
	from, err := earlier.Of(c)
	if err != nil {
		return err
	}
	to, err := later.Of(c)
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

	follow bool // also give new records
	begun  bool // a line was given
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
	if e.follow, err = exportFollow.Of(e.c); err != nil {
		return err
	}
	if e.next, err = exportFrom.Of(e.c); err != nil {
		return err
	}
	e.to, err = exportTo.Of(e.c)
	if err == nil && e.to != 0 && e.to < e.next {
		return httpapi.BadQuery("to_seq", "must not be before from_seq")
	}
	return err
}

// run writes the existing records and then the new ones, up to the requested end.
func (e *exporter) run(out *httpapi.Export) error {
	e.Export = out
	if !e.follow {
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
