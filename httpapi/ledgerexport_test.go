package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/httpapi"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// exportOf is what an export of records from one to another holds.
func exportOf(from, to uint64) []byte {
	first := record.Line{Kind: record.LineFormat, From: from}
	out := first.Append(nil)
	for seq := from; seq <= to; seq++ {
		l := recordLine(seq)
		b := record.Line{Kind: record.LineBatch, Batch: record.Batch{No: seq, First: seq, Count: 1, At: ledgerNow}}
		out = b.Append(l.Append(out))
	}
	return out
}

func TestExport(t *testing.T) {
	for query, want := range map[string][]byte{
		"": exportOf(1, 3), "?from_seq=2": exportOf(2, 3), "?from_seq=2&to_seq=2&follow=0": exportOf(2, 2), "?to_seq=9": exportOf(1, 3),
		"?from_seq=4": exportOf(4, 3), "?from_seq=2&to_seq=2&follow=1": exportOf(2, 2),
	} {
		r := newRig(t)
		w := r.do("GET", "/v1/ledger/export"+query, "", writer)
		if w.Code != 200 || w.Header().Get("Content-Type") != httpapi.TypeLines || !bytes.Equal(w.Body.Bytes(), want) {
			t.Errorf("%s: %d %s, want %s", query, w.Code, w.Body, want)
		}
		if head := r.do("HEAD", "/v1/ledger/export"+query, "", writer); head.Code != 200 || head.Body.Len() != 0 {
			t.Errorf("HEAD %s: %d %q", query, head.Code, head.Body)
		}
	}
	r := newRig(t)
	for query, field := range map[string]string{"to_seq=1&from_seq=2": "to_seq", "follow=yes": "follow", "from_seq=0": "from_seq", "from=1": "from"} {
		if p := problemIn(
			t,
			r.do("GET", "/v1/ledger/export?"+query, "", writer).Body.String(),
		); p.Reason != "malformed" ||
			p.Details["field"] != field {
			t.Errorf("%s: %+v", query, p)
		}
	}
}

// An export that is larger than a chunk comes whole, and one that fails ends with why.
func TestExportInChunks(t *testing.T) {
	r := newRig(t)
	r.wal.seq = 700
	if got := r.do("GET", "/v1/ledger/export", "", writer).Body.Bytes(); len(got) < 2*httpapi.ExportChunk ||
		!bytes.Equal(got, exportOf(1, 700)) {
		t.Errorf("%d bytes", len(got))
	}
	r.wal.broken = 600
	got := r.do("GET", "/v1/ledger/export", "", writer).Body.Bytes()
	rest, whole := bytes.CutPrefix(got, exportOf(1, 599))
	if p := endIn(t, rest); !whole || p.Reason != "upstream" || p.CorrID == "" {
		t.Errorf("ends with %s", rest)
	}
	r.wal.set(wallet.ErrForbidden)
	if w := r.do("GET", "/v1/ledger/export", "", writer); w.Code != 403 ||
		problemIn(t, w.Body.String()).Reason != "forbidden" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// follower reads an export that stays, over the network.
type follower struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

func (r *rig) follow(t *testing.T, ctx context.Context, query string) *follower {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/v1/ledger/export?follow=1"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer good")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &follower{t, resp, bufio.NewReader(resp.Body)}
}

// want reads lines and compares them.
func (f *follower) want(lines []byte) {
	f.t.Helper()
	for _, want := range bytes.SplitAfter(lines, []byte("\n")) {
		if len(want) == 0 {
			continue
		}
		got, err := f.in.ReadBytes('\n')
		if err != nil || !bytes.Equal(got, want) {
			f.t.Fatalf("%s %v, want %s", got, err, want)
		}
	}
}

// Who follows gets what there is, then each batch as it is committed, whatever events were lost, in
// one piece.
func TestExportFollows(t *testing.T) {
	r := newRig(t).listening(t)
	f := r.follow(t, t.Context(), "")
	f.want(exportOf(1, 3))
	r.wal.commit()
	rest, _ := bytes.CutPrefix(exportOf(1, 4), exportOf(1, 3))
	f.want(rest)
	for range 40 { // more than the bus holds
		r.wal.commit()
	}
	rest, _ = bytes.CutPrefix(exportOf(1, 44), exportOf(1, 4))
	f.want(rest)
	r.SetGate(httpapi.GateClosed)
	end, err := f.in.ReadBytes('\n')
	if p := endIn(t, end); err != nil || p.Reason != httpapi.ReasonDraining || !p.Retryable {
		t.Errorf("ends with %q %v", end, err)
	}
	if rest, err := f.in.ReadBytes('\n'); err == nil || len(rest) != 0 {
		t.Errorf("after the end: %q %v", rest, err)
	}
}

// endIn is the problem of an export's last line.
func endIn(t *testing.T, line []byte) wire.Problem {
	t.Helper()
	raw, ended := strings.CutPrefix(string(line), `{"problem":`)
	if ended {
		raw = strings.TrimSuffix(raw, "}\n")
	}
	return problemIn(t, raw)
}

// What refuses an export is told as such: a token that is narrowed, and records that the ledger
// does not reach, as after a restore.
func TestExportRefused(t *testing.T) {
	r := newRig(t)
	for _, query := range []string{"from_seq=5", "from_seq=5&follow=1", "from_seq=5&to_seq=9"} {
		for _, method := range []string{"GET", "HEAD"} {
			w := r.do(method, "/v1/ledger/export?"+query, "", writer)
			if w.Code != 400 || problemIn(t, w.Body.String()).Reason != "malformed" {
				t.Errorf("%s %s: %d %s", method, query, w.Code, w.Body)
			}
		}
	}
	r.Deps().Auth = granted{[]string{scopeExport}, grantOf("alice")}
	for _, seq := range []uint64{3, 0} {
		r.wal.seq = seq
		for _, method := range []string{"GET", "HEAD"} {
			w := r.do(method, "/v1/ledger/export?follow=1", "", writer)
			if w.Code != 403 || problemIn(t, w.Body.String()).Reason != "forbidden" {
				t.Errorf("%s at record %d: %d %s", method, seq, w.Code, w.Body)
			}
		}
	}
}

// A ledger without records has an export. Records committed during the export are sent once.
func TestExportOfNothing(t *testing.T) {
	r := newRig(t).listening(t)
	r.wal.seq = 0
	if w := r.do("GET", "/v1/ledger/export", "", writer); w.Code != 200 ||
		!bytes.Equal(w.Body.Bytes(), exportOf(1, 0)) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f := r.follow(t, t.Context(), "&to_seq=1")
	f.want(exportOf(1, 0))
	r.wal.commit()
	rest, _ := bytes.CutPrefix(exportOf(1, 1), exportOf(1, 0))
	f.want(rest)
	if rest, err := f.in.ReadBytes('\n'); !errors.Is(err, io.EOF) || len(rest) != 0 {
		t.Errorf("after the range: %q %v", rest, err)
	}
}

// An export ends with the range that was asked for, with the node, and with its client; its place
// is free then.
func TestExportEnds(t *testing.T) {
	one := func(c *httpapi.Settings, _ *deps) {
		setStreams(c, httpapi.StreamLimits{Ping: time.Minute, Max: 1, PerNetwork: 1})
	}
	for doc, end := range map[string]func(r *rig, leave context.CancelFunc){
		"range": func(r *rig, _ context.CancelFunc) { r.wal.commit() }, "client": func(_ *rig, leave context.CancelFunc) { leave() },
		"node": func(r *rig, _ context.CancelFunc) { r.phase.Store(flow.Stopping) }, "bus": func(r *rig, _ context.CancelFunc) { r.wal.bus.Close() },
	} {
		r := newRig(t, one).listening(t)
		ctx, leave := context.WithCancel(t.Context())
		f := r.follow(t, ctx, "&to_seq=4")
		f.want(exportOf(1, 3))
		if w := r.do("GET", "/v1/ledger/export", "", writer); w.Code != 429 ||
			problemIn(t, w.Body.String()).Reason != httpapi.ReasonStreams {
			t.Errorf("%s: a second one: %d", doc, w.Code)
		}
		end(r, leave)
		waitFor(t, doc+" to end it", func() bool { return r.OpenStreams(serviceWallet).Count() == 0 })
		leave()
	}
}

// Without commits, a following export gets an empty line per ping interval. Other exports do not.
func TestExportPings(t *testing.T) {
	for query, want := range map[string]int{"?follow=1": 3, "": 0, "?from_seq=2&to_seq=2&follow=1": 0} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *httpapi.Settings, _ *deps) {
				l := someStreams()
				l.Ping = 15 * time.Second
				setStreams(c, l)
			})
			rec := &recorder{header: http.Header{}}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			defer cancel()
			commit := time.AfterFunc(2*time.Second, r.wal.commit) // the silence begins then
			defer commit.Stop()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/v1/ledger/export"+query, nil)
			req.Header.Set("Authorization", "Bearer good")
			r.Router().ServeHTTP(rec, req)
			got := 0
			for line := range strings.Lines(rec.body.String()) {
				if line == "\n" {
					got++
				}
			}
			if got != want {
				t.Errorf("%s: %d empty lines in 48 s of silence, want %d:\n%s", query, got, want, rec.body.String())
			}
		})
	}
}

// An export under way ends with the node too, and does not look whole then: nobody may keep the
// half of it as all there is.
func TestExportEndsMidway(t *testing.T) {
	for doc, end := range map[string]func(*rig){
		"gate": func(r *rig) { r.SetGate(httpapi.GateClosed) }, "phase": func(r *rig) { r.phase.Store(flow.Stopping) },
	} {
		for _, at := range []uint64{3, 600} {
			r := newRig(t)
			r.wal.seq = 700
			r.wal.reached = func(seq uint64) {
				if seq == at {
					end(r)
				}
			}
			w := r.do("GET", "/v1/ledger/export", "", writer)
			rest, whole := bytes.CutPrefix(w.Body.Bytes(), exportOf(1, at-1))
			if at == 3 { // no line was sent
				rest, whole = w.Body.Bytes(), w.Code == 503
			}
			if p := endIn(
				t,
				rest,
			); !whole || p.Reason != httpapi.ReasonDraining || !p.Retryable ||
				p.RetryAfter == 0 {
				t.Errorf("%s at %d: %d, ends with %s", doc, at, w.Code, rest)
			}
		}
	}
}

// A client that does not read is disconnected after the write timeout.
func TestExportToAStalledClient(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, _ *deps) {
		c.Server.WriteTimeout = unit.Duration(100 * time.Millisecond)
	}).listening(t)
	r.wal.seq = 100_000 // 70 MB: more than any socket holds
	c := r.dial(t)
	if _, err := c.Write(
		[]byte("GET /v1/ledger/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n"),
	); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "line that is not taken",
		func() bool { return sum(t, r.metrics, "io_timeouts_total", "op", "write", "service", "wallet") == 1 })
	waitFor(t, "export to be dropped", func() bool { return r.OpenStreams(serviceWallet).Count() == 0 })
}

func TestTheClientExports(t *testing.T) {
	w, c := newWitness(t)
	var got []byte
	add := func(line []byte) error { got = append(append(got, line...), '\n'); return nil }
	if err := c.ExportLedger(t.Context(), 2, 0, false, add); err != nil || !bytes.Equal(got, exportOf(2, 3)) {
		t.Errorf("%v %s", err, got)
	}
	n := 0
	err := c.ExportLedger(t.Context(), 0, 0, true, func([]byte) error {
		if n++; n == 7 {
			w.wal.commit()
		}
		if n == 9 {
			return client.ErrStop
		}
		return nil
	})
	if err != nil || n != 9 {
		t.Errorf("followed %d lines: %v", n, err)
	}
	w.wal.broken = 2
	err = c.ExportLedger(t.Context(), 0, 0, false, add)
	if p, ok := errors.AsType[*wire.Problem](err); !ok || p.Reason != "upstream" || !client.Retryable(err) {
		t.Errorf("broken: %v", err)
	}
}

// The client returns the bytes of receipts unchanged, and whether they are replays.
func TestTheClientPosts(t *testing.T) {
	w, c := newWitness(t)
	w.wal.replay = true
	p, err := c.Transfer(t.Context(), "k.1", transfer())
	if err != nil || !p.Replayed || !bytes.Equal(p.Raw, receiptOf(w.wal.order, "k.1")) || p.Receipt.TxID != txid ||
		p.Receipt.AmountMinor != "5" {
		t.Errorf("%v %+v", err, p)
	}
	w.wal.status = http.StatusMultiStatus
	b, err := c.Batch(t.Context(), "k.2",
		walletapi.Batch{Mode: "independent", Ops: []walletapi.BatchOp{{Op: walletapi.OpRelease, Hold: txid}}})
	if err != nil || !b.Replayed || len(b.Answer.Results) != 2 || b.Answer.Results[1].Status != 409 || len(b.Raw) == 0 {
		t.Errorf("%v %+v", err, b)
	}
	w.wal.set(&wallet.OutcomeError{Unknown: true, Cause: ledger.ErrUnavailable})
	_, err = c.Transfer(t.Context(), "k.1", transfer())
	if p, ok := errors.AsType[*wire.Problem](err); !ok || !p.Unknown() || !client.Retryable(err) {
		t.Errorf("unknown: %v", err)
	}
	if _, err = c.Transfer(t.Context(), "no key", transfer()); client.Retryable(err) {
		t.Errorf("a wrong key: %v", err)
	}
}
