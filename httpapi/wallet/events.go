package wallet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
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

// Query parameters that select payments.
var (
	ofAccount = httpapi.Checked(httpapi.Text("account", "only those of this account"), accountPattern,
		ledger.WantAccount, passes(engines.CheckAccount))
	inAsset = httpapi.Checked(httpapi.Text("asset", "only those in this asset"), assetPattern,
		ledger.WantAsset, passes(engines.CheckAsset))
	ofOps = httpapi.Checked(
		httpapi.Text("op", "only these operations, separated by commas; by default all of "+opWords),
		"^[a-z]+(,[a-z]+)*$", "must be some of "+opWords+", separated by commas", func(text string) bool {
			_, ok := parseOps(text)
			return ok
		})

	paymentsLimit  = httpapi.Number("limit", paymentsPage, 1, mostPayments, "payments of a page")
	paymentsBefore = httpapi.Number("before", 0, 1, httpapi.MaxNumber, "next of the page before: a record of the "+
		"ledger. A call reads 20000 records at most, so a page may have fewer payments than limit, or none, and a next")
	paymentsMemo = httpapi.Checked(httpapi.Text("memo", "only those with this text in the memo"), "",
		"is longer than a memo can be, or no UTF-8", passes(record.CheckMemo))

	eventsAfter = httpapi.Checked(
		httpapi.Text("after", "as Last-Event-ID, which counts if both are given"), "^(0|[1-9][0-9]{0,15})$",
		"must be a number that this stream gave", func(v string) bool { return v == "0" || httpapi.CanonicalNumber(v) })
)

// parseOps parses the words of ops that move money, separated by commas.
func parseOps(text string) (ops []record.Op, ok bool) {
	for word := range strings.SplitSeq(text, ",") {
		op, err := record.ParseOp(word)
		if err != nil || !op.MovesMoney() {
			return nil, false
		}
		ops = append(ops, op)
	}
	return ops, true
}

func (h handlers) listPayments() httpapi.Route {
	return httpapi.Route{
		Pattern:  "payments",
		Handle:   h.getPayments,
		ID:       "listPayments",
		Summary:  "The payments of all accounts that the token may see, newest first",
		Answers:  httpapi.Answers(http.StatusOK, walletapi.PaymentList{}),
		Query:    httpapi.Params(paymentsLimit, paymentsBefore, paymentsMemo, ofAccount, inAsset, ofOps),
		Problems: []int{http.StatusGone},
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
		Query:    httpapi.Params(eventsAfter, ofAccount, inAsset, ofOps),
		Answers:  httpapi.AnswersEvents(kinds...),
		Problems: []int{http.StatusConflict, http.StatusGone},
	}
}

// filterOf returns the filter of a request.
func filterOf(c *httpapi.Request) (f ledger.PaymentFilter, err error) {
	var ops string
	var errAsset, errOps error
	f.Account, err = ofAccount.Of(c)
	f.Asset, errAsset = inAsset.Of(c)
	if ops, errOps = ofOps.Of(c); ops != "" {
		f.Ops, _ = parseOps(ops)
	}
	return f, cmp.Or(err, errAsset, errOps)
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
	memo, errMemo := paymentsMemo.Of(c)
	limit, errLimit := paymentsLimit.Of(c)
	before, errBefore := paymentsBefore.Of(c)
	if err := cmp.Or(err, errMemo, errLimit, errBefore); err != nil {
		return err
	}
	f.Memo, f.Newest = memo, true
	head, err := h.wal.Head(c.Context(), c.Actor())
	if err != nil {
		return err
	}
	to := head.Seq
	if before != 0 {
		to = min(to, before-1)
	}
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
	var closed *ledger.ClosedError
	switch {
	case errors.As(err, &closed) && closed.FirstSeq <= to:
		out.Next, out.FirstSeq = 0, closed.FirstSeq
	case err != nil && !errors.Is(err, errEnough):
		return err
	}
	if out.Next != 0 {
		at, err := h.wal.Horizon(c.Context())
		if err != nil {
			return err
		}
		if out.Next <= at.Seq+1 { // there is no record before it
			out.Next = 0
			if at.Seq != 0 {
				out.FirstSeq = at.Seq + 1
			}
		}
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
// next record: it reads the journal, in slices, and the bus only wakes it. So it misses nothing,
// and a slow client holds up nothing.
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
	text, err := eventsAfter.Of(c)
	if err != nil {
		return err
	}
	if f.resume = text != ""; f.resume {
		f.after, _ = strconv.ParseUint(text, 10, 64)
	}
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

// begin finds the place of the client. It refuses a filter that the client may not have, and a
// place in a closed period.
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
	if err := f.wal.Payments(f.c.Context(), f.c.Actor(), f.filter, f.next, f.after, nil); err != nil {
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
