package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// events opens the stream of payments.
func (r *rig) events(t *testing.T, query, last string) *frames {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/v1/events"+query, nil)
	req.Header.Set("Authorization", "Bearer good")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	f := &frames{t: t, resp: resp, r: bufio.NewReader(resp.Body), stop: cancel}
	t.Cleanup(f.close)
	return f
}

func eventFrame(seq uint64) string {
	p := paymentOf(seq)
	return fmt.Sprintf(`id: %d|event: wallet.transfer|data: {"type":"wallet.transfer","timestamp":"2027-01-15T08:00:00.123Z",`+
		`"data":{"seq":%d,"receipt":%s,"memo":"memo"}}`, seq, seq, p.Receipt.AppendJSON(nil))
}

// A reader gets the payments after the one that it has seen, then new ones; without a place it gets
// new ones only. What it does not ask for, or may not see, is left out, and a ping has its id.
func TestEvents(t *testing.T) {
	r := newRig(t).listening(t)
	for _, tt := range []struct {
		query, last string
		want        []string
	}{
		{"", "", []string{"retry: 3000|id: 3", "id: 3"}},
		{"", "0", []string{"retry: 3000|id: 0", eventFrame(1), eventFrame(2), eventFrame(3), "id: 3"}},
		{"?after=1", "", []string{"retry: 3000|id: 1", eventFrame(2), eventFrame(3), "id: 3"}},
		{"?after=0", "2", []string{"retry: 3000|id: 2", eventFrame(3), "id: 3"}},
		{"?account=bob&asset=ron&op=transfer,issue", "0", []string{"retry: 3000|id: 0", eventFrame(1), eventFrame(2), "id: 3"}},
	} {
		f := r.events(t, tt.query, tt.last)
		if got := f.resp.Header.Get("Content-Type"); got != httpapi.TypeEvents {
			t.Errorf("%q: %s", tt.query, got)
		}
		f.want(tt.want...)
		f.close()
	}
	if q := r.wal.payments[len(r.wal.payments)-1]; q.Asset != "ron" ||
		!slices.Equal(q.Ops, []record.Op{record.OpTransfer, record.OpIssue}) {
		t.Errorf("asked for %+v", q)
	}
	f := r.events(t, "", "3")
	f.want("retry: 3000|id: 3", "id: 3")
	for range 40 { // more than the bus holds
		r.wal.commit()
	}
	for seq := uint64(4); seq <= 43; seq++ {
		f.want(eventFrame(seq))
	}
	r.SetGate(httpapi.GateClosed)
	f.want("event: shutdown|data: {}")
	if rest := f.next(); rest != "" {
		t.Errorf("after the end: %q", rest)
	}
}

// A narrowed token gets what it may see, and a filter outside it is refused. A reader that has seen
// more than the ledger holds is refused, and not given other records under the same ids.
func TestEventsRefused(t *testing.T) {
	r := newRig(t)
	get := func(query, last string) wire.Problem {
		t.Helper()
		h := header{"Authorization": "Bearer good"}
		if last != "" {
			h["Last-Event-ID"] = last
		}
		return problemIn(t, r.do("GET", "/v1/events"+query, "", h).Body.String())
	}
	for _, tt := range [][2]string{{"?after=4", ""}, {"", "4"}, {"?after=1", "9"}} {
		p := get(tt[0], tt[1])
		if p.Status != 409 || p.Reason != "seq_ahead" || p.Details["head_seq"] != 3.0 {
			t.Errorf("%v: %+v", tt, p)
		}
	}
	for query, field := range map[string]string{
		"?op=flags": "op", "?op=issue,": "op", "?account=a%20b": "account", "?asset=A": "asset", "?after=x": "after",
		"?memo=x": "memo", "?after=01": "after",
	} {
		if p := get(query, ""); p.Status != 400 || p.Details["field"] != field {
			t.Errorf("%s: %+v", query, p)
		}
	}
	if p := get("", "x"); p.Status != 400 {
		t.Errorf("an id that is none: %+v", p)
	}
	r.Deps().Auth = granted{[]string{"wallet.read"}, grantOf("carol")}
	if p := get("?account=bob&after=0", ""); p.Status != 403 {
		t.Errorf("a filter outside the token: %+v", p)
	}
	r = r.listening(t)
	f := r.events(t, "", "0")
	f.want("retry: 3000|id: 0", eventFrame(3), "id: 3")
}

// The stream names the place of its reader also while nothing is sent to it, so that nothing is read
// again; and it does not wait for a payment that it shows to say so.
func TestEventsPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *httpapi.Settings, _ *deps) {
			l := someStreams()
			l.Ping = 15 * time.Second
			setStreams(c, l)
		})
		rec := &recorder{header: http.Header{}}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		for _, after := range []time.Duration{11, 21, 31, 41} { // commits that are not shown put off no ping
			defer time.AfterFunc(after*time.Second, r.wal.commit).Stop()
		}
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/v1/events?account=zed", nil)
		req.Header.Set("Authorization", "Bearer good")
		r.Router().ServeHTTP(rec, req)
		want := "retry: 3000\nid: 3\n\nid: 3\n\nid: 4\n\nid: 5\n\nid: 7\n\n"
		if got := rec.body.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A stream that meets a damaged record ends without a word, and its reader resumes there. It ends
// with the node, and with its client; its place is free then.
func TestEventsEnd(t *testing.T) {
	one := func(c *httpapi.Settings, _ *deps) {
		setStreams(c, httpapi.StreamLimits{Ping: time.Minute, Max: 1, PerNetwork: 1})
	}
	for doc, end := range map[string]func(r *rig, f *frames){
		"damage": func(r *rig, _ *frames) { r.wal.set(ledger.ErrSafeMode); r.wal.commit() },
		"client": func(_ *rig, f *frames) { f.close() },
		"node":   func(r *rig, _ *frames) { r.phase.Store(flow.Stopping) },
	} {
		r := newRig(t, one).listening(t)
		f := r.events(t, "", "2")
		f.want("retry: 3000|id: 2", eventFrame(3), "id: 3")
		if w := r.do("GET", "/v1/events", "", writer); w.Code != 429 {
			t.Errorf("%s: a second one: %d", doc, w.Code)
		}
		end(r, f)
		waitFor(t, doc+" to end it", func() bool { return r.OpenStreams(serviceWallet).Count() == 0 })
	}
	r := newRig(t)
	if w := r.do("HEAD", "/v1/events", "", writer); w.Code != 200 || w.Header().Get("Content-Type") != httpapi.TypeEvents {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
}

// A node that does not lead passes the stream on as it comes, and the refusal of the leader.
func TestEventsOfTheLeader(t *testing.T) {
	p := newPair(t, nil)
	b := p.b.listening(t)
	f := b.events(t, "", "1")
	f.want("retry: 3000|id: 1", eventFrame(2), eventFrame(3), "id: 3")
	p.a.wal.commit()
	f.want(eventFrame(4))
	w := b.do("GET", "/v1/events?after=9", "", writer)
	if got := problemIn(t, w.Body.String()); got.Status != 409 || got.Reason != "seq_ahead" {
		t.Errorf("%+v", got)
	}
}

// A page of payments is newest first, and its next leads on without a gap.
func TestPayments(t *testing.T) {
	r := newRig(t)
	r.wal.seq = 50_000
	page := func(query string) walletapi.PaymentList {
		t.Helper()
		return read[walletapi.PaymentList](t, r, "/v1/payments"+query)
	}
	l := page("?limit=3&memo=m&op=transfer")
	if len(l.Events) != 3 || l.Events[0].Data.Seq != 50_000 || l.Next != 49_998 || l.Events[0].Data.Memo != "memo" ||
		r.wal.payments[0].Memo != "m" || !r.wal.payments[0].Newest {
		t.Fatalf("%+v, asked %+v", l, r.wal.payments)
	}
	if l = page("?limit=2&before=49998"); l.Events[0].Data.Seq != 49_997 || l.Next != 49_996 {
		t.Errorf("%+v", l)
	}
	if l = page(""); len(l.Events) != 50 {
		t.Errorf("%d", len(l.Events))
	}
	if l = page("?account=zed"); len(l.Events) != 0 || l.Next != 30_001 {
		t.Errorf("%+v after 20,000 records", l)
	}
	if l = page("?account=zed&before=20001"); len(l.Events) != 0 || l.Next != 0 {
		t.Errorf("%+v at the end", l)
	}
	for _, before := range []string{"3", "1"} {
		if l = page("?before=" + before); l.Next != 0 || len(l.Events) != int(before[0]-'1') {
			t.Errorf("before %s: %+v", before, l)
		}
	}
	r.wal.first = 49_990
	if l = page(""); len(l.Events) != 11 || l.Next != 0 || l.FirstSeq != 49_990 {
		t.Errorf("%+v down to the horizon", l)
	}
	if l = page("?account=zed"); len(l.Events) != 0 || l.Next != 0 || l.FirstSeq != 49_990 {
		t.Errorf("%+v of zed, down to the horizon", l)
	}
	if l = page("?limit=4"); len(l.Events) != 4 || l.Next != 49_997 || l.FirstSeq != 0 {
		t.Errorf("%+v above the horizon", l)
	}
	for _, query := range []string{"?limit=2&before=49992", "?account=zed&before=69990"} { // ends at the horizon
		if l = page(query); l.Next != 0 || l.FirstSeq != 49_990 {
			t.Errorf("%s: %+v", query, l)
		}
	}
	if w := r.do("GET", "/v1/payments?before=49990", "", writer); w.Code != http.StatusGone {
		t.Errorf("below the horizon: %d %s", w.Code, w.Body)
	}
	r.wal.seq = 0
	if l = page(""); l.Events == nil || len(l.Events) != 0 || l.Next != 0 {
		t.Errorf("%+v of nothing", l)
	}
	for _, query := range []string{"?limit=501", "?before=0", "?op=batch", "?memo=" + strings.Repeat("x", 129)} {
		if w := r.do("GET", "/v1/payments"+query, "", writer); w.Code != 400 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

// The client passes on what was sent, what was left out, and the end.
func TestTheClientFollowsPayments(t *testing.T) {
	w, c := newWitness(t)
	var got []string
	err := c.Events(t.Context(), walletapi.PaymentsQuery{Account: "bob"}, client.StreamOptions{LastEventID: "0"},
		func(e client.Event) error {
			got = append(got, e.ID+e.Name)
			if e.ID == "3" {
				return client.ErrStop
			}
			return nil
		})
	if want := []string{"0", "1wallet.transfer", "2wallet.transfer", "3"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	l, err := c.Payments(t.Context(), walletapi.PaymentsQuery{Account: "bob", Limit: 1, Before: 3})
	if err != nil || len(l.Events) != 1 || l.Events[0].Data.Seq != 2 {
		t.Errorf("%+v %v", l, err)
	}
	w.wal.seq = 2
	err = c.Events(t.Context(), walletapi.PaymentsQuery{}, client.StreamOptions{LastEventID: "3"}, nil)
	if p, ok := errors.AsType[*wire.Problem](err); !ok || p.Reason != "seq_ahead" {
		t.Errorf("%v", err)
	}
}

// load pays bob and carol without a pause, until stop.
func (r *moneyRig) load(t *testing.T) (stop func()) {
	t.Helper()
	r.post("issue", `{"to":"alice","asset":"ron","amount_minor":"1000000000"}`, "", 200)
	var ops []string
	for i := range 50 {
		to := "bob"
		if i%7 == 3 {
			to = "carol"
		}
		ops = append(ops, `{"op":"transfer","from":"alice","asset":"ron","amount_minor":"1","to":"`+to+`"}`)
	}
	body := `{"mode":"independent","ops":[` + strings.Join(ops, ",") + `]}`
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; !over.Load(); i++ {
			key := header{"Authorization": "Bearer x", "Idempotency-Key": "load-" + strconv.Itoa(i)}
			if w := r.do("POST", "/v1/batch", body, key); w.Code != 200 {
				t.Errorf("a batch under load: %d %s", w.Code, w.Body)
				return
			}
		}
	}()
	return func() { over.Store(true); <-done }
}

// A reader that is killed again and again under load, and resumes by its last id, gets exactly the
// payments of its filter, in order.
func TestEventsAfterKills(t *testing.T) {
	r := newMoneyRig(t)
	r.rig = r.listening(t)
	stop := r.load(t)
	kills := 300
	if testing.Short() {
		kills = 60
	}
	var got []uint64
	last := "0"
	for n := 0; ; n++ {
		end := uint64(0) // the last payment to carol
		if n == kills {
			stop()
			end = read[walletapi.PaymentList](t, r.rig, "/v1/payments?limit=1&account=carol").Events[0].Data.Seq
		}
		f := r.events(t, "?account=carol", last)
		most := 1 + rand.Int64N(100_000) // bytes until the connection is cut
		if n >= kills {
			most = math.MaxInt64
		}
		in := client.NewFrameReader(io.LimitReader(f.resp.Body, most))
		for {
			e, err := in.Next()
			if err != nil {
				break
			}
			var p walletapi.Event
			if err := json.Unmarshal(e.Data, &p); err != nil || formatUint(p.Data.Seq) != e.ID {
				t.Fatalf("%s: %s", e.ID, e.Data)
			}
			got, last = append(got, p.Data.Seq), e.ID
			if p.Data.Seq == end {
				break
			}
		}
		f.close()
		if n >= kills {
			break
		}
	}
	var want []uint64
	for before := ""; ; {
		page := read[walletapi.PaymentList](t, r.rig, "/v1/payments?limit=500&account=carol"+before)
		for _, e := range page.Events {
			want = append(want, e.Data.Seq)
		}
		if page.Next == 0 {
			break
		}
		before = "&before=" + formatUint(page.Next)
	}
	slices.Reverse(want)
	if !slices.Equal(got, want) {
		t.Fatalf("%d payments of %d after %d kills", len(got), len(want), kills)
	}
}

// Clients that stall delay no payment.
func TestStalledEventsDelayNothing(t *testing.T) {
	r := newMoneyRig(t)
	r.rig = r.listening(t)
	stop := r.load(t)
	for range 8 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		_, _ = io.WriteString(conn, "GET /v1/events?after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n")
		begun := make([]byte, 12)
		if _, err := io.ReadFull(conn, begun); err != nil || !bytes.HasSuffix(begun, []byte(" 200")) {
			t.Fatalf("%s %v", begun, err)
		}
	}
	for range 10 { // each of them may take a minute on a busy machine
		before := r.head().Seq
		waitFor(t, "payments while clients stall", func() bool { return r.head().Seq > before+500 })
	}
	stop()
}
