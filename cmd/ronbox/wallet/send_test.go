package wallet

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

func TestMain(m *testing.M) {
	hosttest.InMemory()
	goleak.VerifyTestMain(m)
}

// impatient returns a Repeater that repeats at once and prints no message.
func impatient() cli.Repeater {
	return cli.Repeater{
		Sleep:    func(context.Context, time.Duration) error { return nil },
		Retrying: func(string, ...any) {},
	}
}

// fakePayer is a node that executes one change and answers according to a script.
type fakePayer struct {
	done   map[string]bool // by key
	script []answer        // one answer per request; nil, or past the end: the normal answer
	keys   []string
}

type answer func(f *fakePayer, key string) error

func (f *fakePayer) post(_ context.Context, key string) (walletapi.Posted, error) {
	f.keys = append(f.keys, key)
	if len(f.script) > 0 {
		act := f.script[0]
		f.script = f.script[1:]
		if act != nil {
			return walletapi.Posted{}, act(f, key)
		}
	}
	return f.apply(key), nil
}

func (f *fakePayer) apply(key string) walletapi.Posted {
	was := f.done[key]
	f.done[key] = true
	return walletapi.Posted{Replayed: was}
}

// These functions simulate the faults of a request.
func lostBefore(*fakePayer, string) error { return fmt.Errorf("x: %w", client.ErrUnknown) }

func lostAfter(f *fakePayer, key string) error {
	f.apply(key)
	return fmt.Errorf("x: %w", client.ErrUnknown)
}

func unreachable(*fakePayer, string) error { return fmt.Errorf("x: %w", client.ErrNotReachable) }

func busyNow(*fakePayer, string) error {
	return &wire.Problem{Status: 429, Reason: "busy", Retryable: true}
}

func unknownNow(f *fakePayer, key string) error {
	f.apply(key)
	return &wire.Problem{
		Status:    503,
		Reason:    "upstream",
		Retryable: true,
		Details:   map[string]any{"outcome": "unknown"},
	}
}

func refused(reason string) answer {
	return func(*fakePayer, string) error {
		row := walletapi.Refusals.Find(reason, "")
		return &wire.Problem{Service: "wallet", Status: row.Status, Reason: reason}
	}
}

// A change is executed at most once under one key, despite lost requests and answers. The key is
// printed before it is sent. The caller gets the outcome or a way to find it out.
func TestSenderMakesAChangeOnce(t *testing.T) {
	all := func(a answer, n int) (out []answer) {
		for range n {
			out = append(out, a)
		}
		return out
	}
	for _, tt := range []struct {
		doc    string
		script []answer
		done   int // changes
		code   int
		next   string // next step of the failure
		sent   int
	}{
		{"at once", nil, 1, cli.ExitDone, "", 1},
		{"the request is lost", []answer{lostBefore, nil}, 1, cli.ExitDone, "", 2},
		{"the answer is lost", []answer{lostAfter, nil}, 1, cli.ExitDone, "", 2},
		{"the node does not know either", []answer{unknownNow, busyNow, nil}, 1, cli.ExitDone, "", 3},
		{"the node goes away and comes back", []answer{lostAfter, unreachable, unreachable, nil}, 1, cli.ExitDone, "", 4},
		{"all answers are lost", all(lostAfter, 9), 1, cli.ExitBusy, "is not known", cli.MaxTries},
		{"lost, then refused for want of room", append([]answer{lostAfter}, all(busyNow, 9)...), 1, cli.ExitBusy, "is not known", cli.MaxTries},
		{"busy for good", all(busyNow, 9), 0, cli.ExitBusy, "nothing was done", cli.MaxTries},
		{"the nonce is taken", []answer{refused("nonce_reused")}, 0, cli.ExitFailed, "wallet seq", 1},
		{"the key is taken", []answer{refused("idem_conflict")}, 0, cli.ExitFailed, "earlier request", 1},
		{"the reference is taken", []answer{refused("reference_conflict")}, 0, cli.ExitFailed, "wallet tx --reference", 1},
	} {
		for _, key := range []string{"", "mine"} {
			f := &fakePayer{done: map[string]bool{}, script: append([]answer(nil), tt.script...)}
			var told []string
			s := &sender{Repeater: impatient(), key: key, tell: func(key string) {
				if told = append(told, key); len(f.keys) > 0 {
					t.Errorf("%s: the key was told late", tt.doc)
				}
			}}
			_, err := s.send(t.Context(), f.post)
			code, next := cli.ExitDone, ""
			if err != nil {
				code, next = cli.Classify(err).Code, cli.Classify(err).Next
			}
			if len(f.done) != tt.done || code != tt.code || !strings.Contains(next, tt.next) || len(f.keys) != tt.sent ||
				len(told) != 1 || key != "" && told[0] != key {
				t.Errorf("%s: %d done, exit %d, next %q, %d sent, told %v (%v)", tt.doc, len(f.done), code, next,
					len(f.keys), told, err)
			}
			for _, used := range f.keys {
				if used != told[0] {
					t.Errorf("%s: told %s, used %s", tt.doc, told[0], used)
				}
			}
		}
	}
}

// The key is used as the reference, so that repeating it is always safe. A key of an earlier
// release contains the nonce and is not used as a reference.
func TestKeyIsTheReference(t *testing.T) {
	const ofBefore = "cli-7-01JD3V9T5E8Q2X7RZ4M6K0ABCD"
	transfer := walletapi.BatchOp{Op: walletapi.OpTransfer, From: "alice", To: "bob"}
	for _, tt := range []struct {
		flags     sendFlags
		op        walletapi.BatchOp
		key       string
		nonce     uint64
		reference string
	}{
		{sendFlags{}, transfer, "k", 0, "k"},
		{sendFlags{nonce: 9}, transfer, "k", 9, "k"},
		{sendFlags{reference: "inv 7"}, transfer, "k", 0, "inv 7"},
		{sendFlags{}, transfer, ofBefore, 7, ""},
		{sendFlags{nonce: 8}, transfer, ofBefore, 8, ofBefore},
		{sendFlags{reference: "x"}, transfer, ofBefore, 0, "x"},
		{sendFlags{}, walletapi.BatchOp{Op: walletapi.OpRelease, Hold: "h"}, ofBefore, 0, ofBefore},
	} {
		if tt.flags.identify(&tt.op, tt.key); tt.op.Nonce != tt.nonce || tt.op.Reference != tt.reference {
			t.Errorf("%+v, %s: %+v", tt.flags, tt.key, tt.op)
		}
	}
	if _, old := nonceIn(newKey()); old {
		t.Error("a new key looks like an old one")
	}
}

// lister is a node that lists assets, or fails.
type lister struct {
	walletapi.AssetList
	err error
}

func (l lister) Assets(context.Context) (walletapi.AssetList, error) { return l.AssetList, l.err }

func (l lister) HoldInfo(_ context.Context, txid string) (walletapi.HoldInfo, error) {
	if txid != someHold {
		return walletapi.HoldInfo{}, &wire.Problem{Status: 404, Reason: "not_found"}
	}
	return walletapi.HoldInfo{TxID: txid, Asset: "ron"}, nil
}

const someHold = "tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD"

// ofAssets lists ron with 2 decimals, wei with 18, and gold with none.
func ofAssets() lister {
	return lister{AssetList: walletapi.AssetList{Assets: []walletapi.Asset{
		{Asset: "ron", Decimals: 2, DecimalsSet: true}, {Asset: "wei", Decimals: 18}, {Asset: "gold"},
	}}}
}

// An AMOUNT becomes the minor units of its asset, or is refused.
func TestAmountOfTheCommandLine(t *testing.T) {
	const most = "340282366920938463463374607431768211455"
	a := app{cli.New(nil, io.Discard, io.Discard, server.Build{})}
	for _, tt := range []struct {
		text  string
		minor bool
		op    walletapi.BatchOp
		want  string
		exit  int
		says  string
	}{
		{"12", false, walletapi.BatchOp{Asset: "ron"}, "1200", 0, ""},
		{"12.0", false, walletapi.BatchOp{Asset: "ron"}, "1200", 0, ""},
		{"12.00", false, walletapi.BatchOp{Asset: "ron"}, "1200", 0, ""},
		{"12", true, walletapi.BatchOp{Asset: "ron"}, "12", 0, ""},
		{"12", false, walletapi.BatchOp{Asset: "gold"}, "12", 0, ""},
		{"3.5", false, walletapi.BatchOp{Hold: someHold}, "350", 0, ""},
		{"3.5", false, walletapi.BatchOp{Hold: "tx_1"}, "", cli.ExitFailed, ""},
		{most, false, walletapi.BatchOp{Asset: "gold"}, most, 0, ""},
		{most, true, walletapi.BatchOp{Asset: "silver"}, most, 0, ""},
		{"340282366920938463463.374607431768211455", false, walletapi.BatchOp{Asset: "wei"}, most, 0, ""},
		{"12.001", false, walletapi.BatchOp{Asset: "ron"}, "", cli.ExitUsage, "ron has 2 digits after the point"},
		{"12.0", false, walletapi.BatchOp{Asset: "gold"}, "", cli.ExitUsage, "gold has no digits after the point"},
		{"1", false, walletapi.BatchOp{Asset: "silver"}, "", cli.ExitFailed, "silver is not declared"},
		{most, false, walletapi.BatchOp{Asset: "wei"}, "", cli.ExitUsage, "above 2^128-1"},
		{"12.0", true, walletapi.BatchOp{Asset: "ron"}, "", cli.ExitUsage, "minor units have no point"},
		{"0.00", false, walletapi.BatchOp{Asset: "ron"}, "", cli.ExitUsage, "must be above 0"},
		{"0", true, walletapi.BatchOp{Asset: "ron"}, "", cli.ExitUsage, "must be above 0"},
		{"1e5", false, walletapi.BatchOp{Asset: "ron"}, "", cli.ExitUsage, "must be digits"},
		{"1,5", true, walletapi.BatchOp{Asset: "ron"}, "", cli.ExitUsage, "must be digits"},
	} {
		op := tt.op
		op.AmountMinor = tt.text
		err := checkAmount(tt.text, tt.minor)
		if err == nil {
			err = a.toMinor(t.Context(), ofAssets(), &op, tt.minor)
		}
		exit := cli.ExitDone
		if err != nil {
			exit = cli.Classify(err).Code
		}
		if exit != tt.exit || err == nil && op.AmountMinor != tt.want || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s, minor %t, of %+v: %s, exit %d, %v", tt.text, tt.minor, tt.op, op.AmountMinor, exit, err)
		}
	}
}

// Nothing is sent if the decimals of an amount cannot be read, or are impossible.
func TestNoDecimals(t *testing.T) {
	a := app{cli.New(nil, io.Discard, io.Discard, server.Build{})}
	for _, tt := range []struct {
		node lister
		exit int
		next string
	}{
		{lister{err: fmt.Errorf("x: %w", client.ErrNotReachable)}, cli.ExitUnreachable, "ronbox serve"},
		{lister{err: &wire.Problem{Status: 403, Reason: "forbidden"}}, cli.ExitDenied, "with --minor"},
		{lister{AssetList: walletapi.AssetList{Assets: []walletapi.Asset{{Asset: "ron", Decimals: -1}}}}, cli.ExitBad, ""},
		{lister{AssetList: walletapi.AssetList{Assets: []walletapi.Asset{{Asset: "ron", Decimals: 19}}}}, cli.ExitBad, ""},
	} {
		op := walletapi.BatchOp{Asset: "ron", AmountMinor: "12"}
		err := a.toMinor(t.Context(), tt.node, &op, false)
		if err == nil || !strings.Contains(err.Error(), "nothing was sent") {
			t.Fatalf("%+v: %v", tt.node, err)
		}
		if v := cli.Classify(err); v.Code != tt.exit || !strings.Contains(v.Next, tt.next) {
			t.Errorf("%+v: %+v, %v", tt.node, v, err)
		}
	}
}

// An amount is shown as it can be typed again. Minor units are marked.
func TestShownAmounts(t *testing.T) {
	d := decimals{"ron": 2, "gold": 0}
	for minor, want := range map[string]string{"0": "0.00", "5": "0.05", "50": "0.50", "1250": "12.50", "-": "-"} {
		if got := d.bare(minor, "ron"); got != want {
			t.Errorf("%s is shown as %s, want %s", minor, got, want)
		}
	}
	for asset, want := range map[string]string{"ron": "12.50 ron", "gold": "1250 gold", "wei": "1250 wei (minor units)"} {
		if got := d.show("1250", asset); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// No token helps against a limit, or reaches an account of the ledger.
func TestExitsOfRefusals(t *testing.T) {
	for _, p := range []*wire.Problem{
		{Service: "wallet", Status: 403, Reason: "limit_op"},
		{Service: "wallet", Status: 403, Reason: "forbidden", Details: map[string]any{"cause": "system_account"}},
	} {
		if v := cli.Classify(p); v.Code != cli.ExitFailed {
			t.Errorf("%s: %+v", p.Reason, v)
		}
	}
}

// The declaration of an asset that a closed period has is no failure: the asset is shown.
func TestDeclaredInAClosedPeriod(t *testing.T) {
	for cause, want := range map[string]bool{"declared": true, "read": false, "": false} {
		p := &wire.Problem{Service: "wallet", Status: 410, Reason: "period_closed", Details: map[string]any{"cause": cause}}
		if got := declaredBefore(&cli.Failure{Err: fmt.Errorf("declare: %w", p)}); got != want {
			t.Errorf("%q: %v, want %v", cause, got, want)
		}
	}
	var out strings.Builder
	a := app{cli.New(nil, &out, io.Discard, server.Build{})}
	err := a.showAsset(t.Context(), ofAssets(), "wei")
	if err != nil || !strings.Contains(out.String(), "nothing was changed") {
		t.Errorf("%v, %q", err, out.String())
	}
	if err := a.showAsset(t.Context(), ofAssets(), "mud"); err == nil {
		t.Error("mud is shown")
	}
}

// Tables distinguish held amounts from freed ones. They show that a locked account cannot spend its
// balance.
func TestWordsOfTables(t *testing.T) {
	entry := func(op record.Op) walletapi.HistoryEntry {
		r := record.Receipt{
			TxID:    record.NewTxID(5e6, 5, 0),
			Op:      op,
			From:    "a",
			To:      "b",
			Asset:   "ron",
			Amount:  engines.AmountOf(0, 9),
			Idem:    "k",
			At:      5e6,
			Seq:     5,
			Batch:   1,
			Version: 1,
		}
		if op != record.OpHold {
			r.Hold = r.TxID
		}
		return walletapi.HistoryEntry{Receipt: r.AppendJSON(nil), Side: "debit", BalanceMinor: "1"}
	}
	table := func(human func(cli.Table)) string {
		var out strings.Builder
		a := cli.New(nil, &out, io.Discard, server.Build{})
		if err := a.Show(nil, human); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for op, want := range map[record.Op]string{record.OpHold: "held 9", record.OpRelease: "freed 9", record.OpExpire: "freed 9"} {
		if got := table(func(w cli.Table) {
			historyTable(w, walletapi.History{Entries: []walletapi.HistoryEntry{entry(op)}}, "ron", nil, true, false)
		}); !strings.Contains(got, want) {
			t.Errorf("%s: want %s: %s", op, want, got)
		}
	}
	for oldest, lines := range map[bool][2]string{false: {"transfer", "opening"}, true: {"opening", "transfer"}} {
		got := table(func(w cli.Table) {
			historyTable(w, walletapi.History{
				Entries: []walletapi.HistoryEntry{entry(record.OpTransfer)},
				Opening: &walletapi.Opening{Period: 3, Postings: 12, PostedMinor: "77", AvailableMinor: "70"},
			}, "ron", nil, true, oldest)
		})
		first, second := strings.Index(got, lines[0]), strings.Index(got, lines[1])
		if first < 0 || second < first || !strings.Contains(got, "77 ron") || !strings.Contains(got, "12 older entries") {
			t.Errorf("oldest first %v: %s", oldest, got)
		}
	}
	for flag, locked := range map[string]bool{"frozen": true, "closed": true, "no_debit": true, "no_credit": false} {
		got := table(func(w cli.Table) {
			balanceTable(w, walletapi.Balance{Account: "a", Asset: "ron", AmountMinor: "9"}, []string{flag}, nil)
		})
		if strings.Contains(got, "nothing while it is locked: "+flag) != locked {
			t.Errorf("%s: %s", flag, got)
		}
	}
}
