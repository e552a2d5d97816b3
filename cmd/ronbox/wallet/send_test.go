package wallet

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	walletapi "ronbox/httpapi/wallet"
	"ronbox/httpapi/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// impatient repeats at once and without a word.
func impatient() cli.Repeater {
	return cli.Repeater{Sleep: func(context.Context, time.Duration) error { return nil }, Retrying: func(string, ...any) {}}
}

// fakePayer is a node with one account, which answers as a script says.
type fakePayer struct {
	next   uint64 // nonce
	done   map[string]uint64
	script []func(f *fakePayer, key string, nonce uint64) error // one a request; nil, or none left: as a node does
	keys   []string
	nonces []uint64
}

func (f *fakePayer) account(context.Context, string) (walletapi.Account, error) {
	return walletapi.Account{NextNonce: f.next}, nil
}

func (f *fakePayer) post(_ context.Context, key string, nonce uint64) (walletapi.Posted, error) {
	f.keys, f.nonces = append(f.keys, key), append(f.nonces, nonce)
	if len(f.script) > 0 {
		act := f.script[0]
		f.script = f.script[1:]
		if act != nil {
			return walletapi.Posted{}, act(f, key, nonce)
		}
	}
	return f.apply(key, nonce)
}

func (f *fakePayer) apply(key string, nonce uint64) (walletapi.Posted, error) {
	if was, ok := f.done[key]; ok && was == nonce {
		return walletapi.Posted{Replayed: true}, nil
	} else if ok {
		return walletapi.Posted{}, &wire.Problem{Status: 422, Code: "IDEMPOTENCY_CONFLICT", Reason: "idem_conflict"}
	}
	if nonce != f.next {
		return walletapi.Posted{}, &wire.Problem{Status: 409, Code: codeNonce, Reason: "nonce_reused"}
	}
	f.next++
	f.done[key] = nonce
	return walletapi.Posted{}, nil
}

// What a request can meet on its way.
func lostBefore(*fakePayer, string, uint64) error { return fmt.Errorf("x: %w", client.ErrUnknown) }

func lostAfter(f *fakePayer, key string, nonce uint64) error {
	_, _ = f.apply(key, nonce)
	return fmt.Errorf("x: %w", client.ErrUnknown)
}

func unreachable(*fakePayer, string, uint64) error {
	return fmt.Errorf("x: %w", client.ErrNotReachable)
}

func busyNow(*fakePayer, string, uint64) error {
	return &wire.Problem{Status: 429, Code: "BUSY", Reason: "busy", Retryable: true}
}

func unknownNow(f *fakePayer, key string, nonce uint64) error {
	_, _ = f.apply(key, nonce)
	return &wire.Problem{Status: 503, Code: "UPSTREAM_UNAVAILABLE", Reason: "upstream", Retryable: true, Details: map[string]any{"outcome": "unknown"}}
}

// taken is a nonce that another has used in between.
func taken(f *fakePayer, key string, nonce uint64) error {
	f.next++
	_, err := f.apply(key, nonce)
	return err
}

// Whatever happens to requests and answers, a change is made once or not at all, and its caller is told which, or how to
// findPosting out.
func TestSenderMakesAChangeOnce(t *testing.T) {
	type act = func(*fakePayer, string, uint64) error
	all := func(a act, n int) (out []act) {
		for range n {
			out = append(out, a)
		}
		return out
	}
	for _, tt := range []struct {
		doc    string
		script []act
		key    string
		nonce  uint64
		done   int // changes
		code   int
		next   string // of the failure
		sent   int
		keys   int // different ones
	}{
		{"at once", nil, "", 0, 1, cli.ExitDone, "", 1, 1},
		{"the request is lost", []act{lostBefore, nil}, "", 0, 1, cli.ExitDone, "", 2, 1},
		{"the answer is lost", []act{lostAfter, nil}, "", 0, 1, cli.ExitDone, "", 2, 1},
		{"the node does not know either", []act{unknownNow, busyNow, nil}, "", 0, 1, cli.ExitDone, "", 3, 1},
		{"the node goes away and comes back", []act{lostAfter, unreachable, unreachable, nil}, "", 0, 1, cli.ExitDone, "", 4, 1},
		{"all answers are lost", all(lostAfter, 9), "", 0, 1, cli.ExitBusy, "is not known", cli.MaxTries, 1},
		{"lost, then refused for want of room", append([]act{lostAfter}, all(busyNow, 9)...), "", 0, 1, cli.ExitBusy, "is not known", cli.MaxTries, 1},
		{"busy for good", all(busyNow, 9), "", 0, 0, cli.ExitBusy, "nothing was done", cli.MaxTries, 1},
		{"another takes the nonce", []act{taken, taken, nil}, "", 0, 1, cli.ExitDone, "", 3, 3},
		{"another always takes it", all(taken, 9), "", 0, 0, cli.ExitBusy, "who else", maxRenewed, maxRenewed},
		{"taken after an answer was lost", []act{lostBefore, taken, nil}, "", 0, 0, cli.ExitFailed, "is not known", 2, 1},
		{"a given nonce is not chosen anew", []act{taken, nil}, "", 7, 0, cli.ExitFailed, "wallet seq", 1, 1},
		{"a given key is not either", []act{taken, nil}, "mine", 0, 0, cli.ExitFailed, "wallet seq", 1, 1},
	} {
		f := &fakePayer{next: 7, done: map[string]uint64{}, script: tt.script}
		var told []string
		s := &sender{Repeater: impatient(), flags: &sendFlags{key: tt.key, nonce: tt.nonce}, account: f.account,
			tell: func(key string) { told = append(told, fmt.Sprint(len(f.keys), " ", key)) }}
		_, err := s.send(t.Context(), order{payer: "alice", post: f.post})
		code, next := cli.ExitDone, ""
		if err != nil {
			code, next = cli.Classify(err).Code, cli.Classify(err).Next
		}
		if len(f.done) != tt.done || code != tt.code || !strings.Contains(next, tt.next) || len(f.keys) != tt.sent || len(told) != tt.keys {
			t.Errorf("%s: %d done, exit %d, next %q, %d sent under %d keys (%v)", tt.doc, len(f.done), code, next, len(f.keys), len(told), err)
		}
		for _, line := range told { // before the first request under it
			n, key, _ := strings.Cut(line, " ")
			if i := indexOf(f.keys, key); fmt.Sprint(i) != n {
				t.Errorf("%s: key %s was told after %s requests, used by number %d", tt.doc, key, n, i)
			}
		}
	}
}

func indexOf(list []string, s string) int {
	for i, x := range list {
		if x == s {
			return i
		}
	}
	return -1
}

// A repeat with the key alone sends what was sent before: the key holds the nonce.
func TestKeyHoldsTheNonce(t *testing.T) {
	f := &fakePayer{next: 7, done: map[string]uint64{}}
	send := func(flags sendFlags) (walletapi.Posted, error) {
		s := &sender{Repeater: impatient(), flags: &flags, account: f.account, tell: func(string) {}}
		return s.send(t.Context(), order{payer: "alice", post: f.post})
	}
	if _, err := send(sendFlags{}); err != nil {
		t.Fatal(err)
	}
	key := f.keys[0]
	if got, err := send(sendFlags{key: key}); err != nil || !got.Replayed {
		t.Errorf("the repeat of %s: %+v, %v", key, got, err)
	}
	if _, err := send(sendFlags{key: key, nonce: 8}); !strings.Contains(cli.Classify(err).Next, "another request") {
		t.Errorf("the key with another nonce: %v", err)
	}
	for key, want := range map[string]uint64{
		newKey(1): 1, newKey(1<<64 - 1): 1<<64 - 1, newKey(0): 0, "mine": 0, "cli-99999999999999999999-01JD3V9T5E8Q2X7RZ4M6K0ABCD": 0,
		"cli-01JD3V9T5E8Q2X7RZ4M6K0ABCD": 0, "cli-07-01JD3V9T5E8Q2X7RZ4M6K0ABCD": 0,
	} {
		if n, ok := nonceIn(key); n != want && ok {
			t.Errorf("nonceIn(%q) = %d, %t", key, n, ok)
		}
	}
}

// fakeStatement is a node whose keys are forgotten: it refuses the nonce, and its statement has what was done.
type fakeStatement struct {
	fakePayer
	entries []walletapi.HistoryEntry
}

func (f *fakeStatement) History(_ context.Context, q walletapi.HistoryQuery) (walletapi.History, error) {
	if q.Account != "alice" {
		return walletapi.History{}, fmt.Errorf("asked for %+v", q)
	}
	return walletapi.History{Entries: f.entries}, nil
}

func (f *fakeStatement) Tx(context.Context, string) ([]byte, error) { return f.entries[0].Receipt, nil }

// What was paid is not refused when it is repeated with its key after the node has forgotten that, whatever the key
// looks like; another payment under the same key is.
func TestRepeatOfWhatIsForgotten(t *testing.T) {
	for _, key := range []string{"cli-7-01JD3V9T5E8Q2X7RZ4M6K0ABCD", "mine"} {
		was := record.Receipt{TxID: record.NewTxID(5e6, 5, 0), Op: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: engines.AmountOf(0, 9),
			Nonce: 7, Idem: key, At: 5e6, Seq: 5, Batch: 1, Version: 1}
		f := &fakeStatement{fakePayer{next: 8, done: map[string]uint64{}}, []walletapi.HistoryEntry{{Receipt: was.AppendJSON(nil)}}}
		for amount, paid := range map[string]bool{"9": true, "8": false} {
			s := &sender{Repeater: impatient(), flags: &sendFlags{key: key}, account: f.account, node: f, tell: func(string) {}}
			op := walletapi.BatchOp{Op: walletapi.OpTransfer, From: "alice", To: "bob", Asset: "ron", AmountMinor: amount}
			got, err := s.send(t.Context(), order{payer: "alice", op: op, post: f.post})
			if paid && (err != nil || !got.Replayed || string(got.Raw) != string(was.AppendJSON(nil))) || !paid && !hasCode(err, codeNonce) || len(f.done) > 0 {
				t.Errorf("%s, %s: %+v, %v, done %v", key, amount, got, err, f.done)
			}
		}
	}
}

func TestNoNonceIsLookedUpWhereNoneIsTaken(t *testing.T) {
	f := &fakePayer{done: map[string]uint64{}}
	s := &sender{Repeater: impatient(), flags: &sendFlags{}, tell: func(string) {}} // without account: looking one up would panic
	if _, err := s.send(t.Context(), order{post: f.post}); err != nil || f.nonces[0] != 0 {
		t.Errorf("sent nonce %d: %v", f.nonces[0], err)
	}
}

// The verbs of a service know more of its refusals than their status says.
func TestHints(t *testing.T) {
	if v := cli.Classify(&wire.Problem{Status: 403, Code: "LIMITS_EXCEEDED"}, hint); v.Code != cli.ExitFailed {
		t.Errorf("no token would help: %+v", v)
	}
	if v := cli.Classify(&wire.Problem{Status: 403, Details: map[string]any{"cause": "system_account"}}, hint); v.Code != cli.ExitFailed || v.Next != "" {
		t.Errorf("no token would help: %+v", v)
	}
}

// What a hold keeps back and what comes free again are told apart, and what a locked account has is not there to spend.
func TestWordsOfTables(t *testing.T) {
	entry := func(op record.Op) walletapi.HistoryEntry {
		r := record.Receipt{TxID: record.NewTxID(5e6, 5, 0), Op: op, From: "a", To: "b", Asset: "ron", Amount: engines.AmountOf(0, 9), Idem: "k", At: 5e6, Seq: 5, Batch: 1, Version: 1}
		if op != record.OpHold {
			r.Hold = r.TxID
		}
		return walletapi.HistoryEntry{Receipt: r.AppendJSON(nil), Side: "debit", BalanceMinor: "1"}
	}
	table := func(human func(cli.Table)) string {
		var out strings.Builder
		a := cli.New(nil, &out, io.Discard, appliance.Build{})
		if err := a.Show(nil, human); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for op, want := range map[record.Op]string{record.OpHold: "held 9", record.OpRelease: "freed 9", record.OpExpire: "freed 9"} {
		if got := table(func(w cli.Table) {
			historyTable(w, walletapi.History{Entries: []walletapi.HistoryEntry{entry(op)}}, "ron")
		}); !strings.Contains(got, want) {
			t.Errorf("%s: want %s: %s", op, want, got)
		}
	}
	for flag, locked := range map[string]bool{"frozen": true, "closed": true, "no_debit": true, "no_credit": false} {
		got := table(func(w cli.Table) {
			balanceTable(w, walletapi.Balance{Account: "a", Asset: "ron", AmountMinor: "9"}, []string{flag})
		})
		if strings.Contains(got, "nothing while it is locked: "+flag) != locked {
			t.Errorf("%s: %s", flag, got)
		}
	}
}
