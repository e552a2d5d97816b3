package wallet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi"
	ledgerhttp "ronbox/httpapi/ledger"
	"ronbox/httpapi/openapi"
	walletapi "ronbox/httpapi/wire/wallet"
)

// Payments reads the records that move money.
type Payments interface {
	// Payments calls fn with those from one record to another that f selects.
	Payments(ctx context.Context, by engines.Actor, f ledger.PaymentFilter, from, to uint64,
		fn func(*ledger.Outcome) error) error
	Head(ctx context.Context, by engines.Actor) (record.Head, error)
	Events(consumer string) *flow.Subscription[ledger.Committed]
}

const (
	paymentsPage = 50     // payments, if the query has no limit
	mostPayments = 500    // of a page
	paymentsRead = 20_000 // records that one call of payments reads, some 60 ms
	eventsRead   = 4096   // records that a stream reads before it looks after its client
)

// consumerEvents is the name of a stream of payments on the ledger's bus.
const consumerEvents = "events"

// opWords are the values of the parameter op.
const opWords = "issue, transfer, burn, hold, capture, release, expire"

func paymentFilter(more ...openapi.Param) []openapi.Param {
	account, asset := accountParam(), assetParam()
	account.Doc, account.Required = "only those of this account", false
	asset.Doc, asset.Required = "only those in this asset", false
	op := openapi.Param{
		Name:    "op",
		Doc:     "only these operations, separated by commas; by default all of " + opWords,
		Pattern: "^[a-z]+(,[a-z]+)*$",
	}
	return append(more, account, asset, op)
}

func (h handlers) listPayments() httpapi.Route {
	return httpapi.Route{
		Pattern: "payments",
		Handle:  h.getPayments,
		ID:      "listPayments",
		Summary: "The payments of all accounts that the token may see, newest first",
		Answers: httpapi.Answers(http.StatusOK, walletapi.PaymentList{}),
		Query: paymentFilter(
			openapi.Number("limit", "payments of a page", mostPayments),
			openapi.Number("before", "next of the page before: a record of the ledger. "+
				"A call reads 20000 records at most, so a page may have fewer payments than limit, or none, and a next",
				httpapi.MaxNumber),
			openapi.Param{Name: "memo", Doc: "only those with this text in the memo"},
		),
	}
}

func (h handlers) streamPayments() httpapi.Route {
	var kinds []openapi.Event
	for op := record.OpIssue; op <= record.OpExpire; op++ {
		kinds = append(kinds, openapi.Event{Name: walletapi.EventPrefix + op.String(), Body: walletapi.Event{}})
	}
	last := httpapi.LastEvent("event")
	last.Doc += "; 0: all of them. Without it, and without after, new ones only"
	return httpapi.Route{
		Method:   http.MethodGet,
		Pattern:  prefix + "events",
		Handle:   h.getEvents,
		Scope:    service + ".read",
		Class:    httpapi.ClassStream,
		Endpoint: consumerEvents,
		ID:       "streamPayments",
		Summary:  "The payments of all accounts that the token may see, as they are committed",
		Headers:  []openapi.Param{last},
		Query: paymentFilter(openapi.Param{
			Name: "after", Doc: "as Last-Event-ID, which counts if both are given", Sample: uint64(0), Max: httpapi.MaxNumber,
		}),
		Answers:  httpapi.AnswersEvents(kinds...),
		Problems: []int{http.StatusConflict},
	}
}

// filterOf returns the filter of a request.
func filterOf(c *httpapi.Request) (f ledger.PaymentFilter, err error) {
	q := c.Query()
	if q.Has("account") {
		if f.Account, err = accountOf(c); err != nil {
			return f, err
		}
	}
	if q.Has("asset") {
		if f.Asset, err = assetOf(c); err != nil {
			return f, err
		}
	}
	if q.Has("op") {
		for word := range strings.SplitSeq(q.Get("op"), ",") {
			op, err := record.ParseOp(word)
			if err != nil || !op.MovesMoney() {
				return f, httpapi.BadQuery("op", "must be some of "+opWords+", separated by commas")
			}
			f.Ops = append(f.Ops, op)
		}
	}
	if f.Memo = q.Get("memo"); record.CheckMemo(f.Memo) != nil {
		return f, httpapi.BadQuery("memo", "is longer than a memo can be, or no UTF-8")
	}
	return f, nil
}

// eventOf returns a payment as lists and streams show it.
func eventOf(out *ledger.Outcome) walletapi.Event {
	r := &out.Receipt
	return walletapi.Event{
		Type:      walletapi.EventPrefix + r.Op.String(),
		Timestamp: ledgerhttp.Instant(r.At),
		Data:      walletapi.Payment{Seq: r.Seq, Receipt: r.AppendJSON(nil), Memo: out.Memo},
	}
}

// errEnough ends a read of payments.
var errEnough = errors.New("the page is full")

// getPayments serves GET /v1/payments.
func (h handlers) getPayments(c *httpapi.Request) error {
	f, err := filterOf(c)
	if err != nil {
		return err
	}
	f.Newest = true
	limit, err := c.Number("limit", paymentsPage, 1, mostPayments)
	if err != nil {
		return err
	}
	before, err := c.Number("before", httpapi.MaxNumber, 1, httpapi.MaxNumber)
	if err != nil {
		return err
	}
	head, err := h.wal.Head(c.Context(), c.Actor())
	if err != nil {
		return err
	}
	to := min(head.Seq, before-1)
	from := max(to, paymentsRead) - paymentsRead + 1
	out := walletapi.PaymentList{Events: []walletapi.Event{}, Next: from}
	err = h.wal.Payments(c.Context(), c.Actor(), f, from, to, func(p *ledger.Outcome) error {
		out.Events = append(out.Events, eventOf(p))
		if len(out.Events) == int(limit) {
			out.Next = p.Receipt.Seq
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if out.Next == 1 {
		out.Next = 0 // there is no record before it
	}
	return c.Respond(http.StatusOK, out)
}

// SeqAheadError is returned for a reader of events who has seen more than the ledger holds, as one
// that was restored from a snapshot.
type SeqAheadError struct{ After, Head uint64 }

func (e *SeqAheadError) Error() string {
	return fmt.Sprintf("record %d was seen, but the ledger ends with record %d: it was restored, or is another one",
		e.After, e.Head)
}

// follower is one client of the payments, fed by the goroutine of its connection. Its state is the
// next record: it reads the journal, in slices, and the bus only wakes it. So it misses nothing, and
// a slow client holds up nothing.
type follower struct {
	*httpapi.Export
	wal    Payments
	c      *httpapi.Request
	filter ledger.PaymentFilter
	after  uint64 // the last record that the client has seen
	resume bool   // the client has named it

	next uint64 // the record to read next
	head uint64 // the newest record, as far as is known
}

// getEvents serves GET /v1/events.
func (h handlers) getEvents(c *httpapi.Request) (err error) {
	f := &follower{wal: h.wal, c: c}
	if f.filter, err = filterOf(c); err != nil {
		return err
	}
	if f.after, err = c.Number("after", 0, 0, httpapi.MaxNumber); err != nil {
		return err
	}
	f.resume = c.Query().Has("after")
	after, again, err := c.LastEventID()
	if err != nil {
		return err
	}
	if again {
		f.after, f.resume = after, true
	}
	return c.ExportEvents(func() uint64 { return f.next - 1 }, f.run)
}

// run sends the payments after the client's last one, and then new ones.
func (f *follower) run(out *httpapi.Export) error {
	f.Export = out
	sub := f.wal.Events(consumerEvents) // before the head is read: later commits are on it
	defer sub.Close()
	if err := f.begin(); err != nil {
		return err
	}
	for caughtUp := false; ; caughtUp = true {
		if err := f.catchUp(); err != nil {
			return err
		}
		if !caughtUp {
			if err := f.Ping(); err != nil { // the client learns that it has all of them so far
				return err
			}
		}
		if err := httpapi.Await(out, sub, f.more); err != nil {
			return err
		}
	}
}

// begin finds the place of the client, and refuses a filter that it may not have.
func (f *follower) begin() error {
	head, err := f.wal.Head(f.c.Context(), f.c.Actor())
	if err != nil {
		return err
	}
	f.head = head.Seq
	switch {
	case !f.resume:
		f.after = f.head
	case f.after > f.head:
		return &SeqAheadError{f.after, f.head}
	}
	f.next = f.after + 1
	if err := f.wal.Payments(f.c.Context(), f.c.Actor(), f.filter, f.head+1, f.head, nil); err != nil {
		return err
	}
	return f.Begin()
}

func (f *follower) more(c ledger.Committed) bool {
	f.head = max(f.head, c.Last)
	return f.next <= f.head
}

// catchUp sends the payments up to the head.
func (f *follower) catchUp() error {
	for f.next <= f.head {
		to := min(f.head, f.next+eventsRead-1)
		err := f.wal.Payments(f.c.Context(), f.c.Actor(), f.filter, f.next, to, f.send)
		if err != nil {
			return err
		}
		f.next = to + 1
		if err := f.Flush(); err != nil {
			return err
		}
		if err := f.Alive(); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) send(out *ledger.Outcome) error {
	e := eventOf(out)
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return f.Event(e.Type, e.Data.Seq, data)
}
