package wallet

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	walletapi "ronbox/httpapi/wire/wallet"
)

var update = flag.Bool("update", false, "write what golden files lack")

// frozen compares lines with a golden file. With -update it appends missing lines and never
// rewrites an existing one.
func frozen(t *testing.T, path string, lines [][]byte) {
	t.Helper()
	got := append(bytes.Join(lines, []byte{'\n'}), '\n')
	want, err := os.ReadFile(path)
	if *update && (err == nil || os.IsNotExist(err)) && bytes.HasPrefix(got, want) {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is frozen, and this program writes something else:\n%s", path, got)
	}
}

// done returns the outcome of an op that was accepted in a golden batch, with record seq.
func done(op record.Op, seq uint64) ledger.Outcome {
	const at = 1_767_323_045_678_901_234 // 2026-01-02T03:04:05.678901234Z
	r := record.Receipt{
		TxID:    record.NewTxID(at, seq, 0xbeef),
		Op:      op,
		From:    "alice",
		To:      "shop:till/7_a-B",
		Asset:   "ron",
		Amount:  engines.AmountOf(1, 25),
		Nonce:   seq,
		Idem:    "batch-7.retry:1_a",
		At:      at,
		Seq:     seq,
		Batch:   3,
		Root:    b3.Sum([]byte("root")),
		Version: record.ReceiptVersion,
	}
	switch op {
	case record.OpIssue:
		r.From = ""
	case record.OpBurn:
		r.To = ""
	case record.OpCapture:
		r.Nonce, r.Hold = 0, record.NewTxID(at-5_000_000_000, seq-1, 0xcafe)
	}
	return ledger.Outcome{Receipt: r}
}

func refusedFor(code record.Result) ledger.Outcome {
	return ledger.Outcome{Reject: &ledger.Reject{Code: code}}
}

// goldenBatches returns an atomic batch, an independent batch, and one batch per reason to refuse
// an op, in the order of the reasons' numbers. A new reason is added at the end.
func goldenBatches() []ledger.Outcome {
	repeated := done(record.OpTransfer, 7)
	repeated.Replayed = true
	all := []ledger.Outcome{
		{
			Batch:  true,
			Atomic: true,
			Results: []ledger.Outcome{
				done(record.OpIssue, 1),
				done(record.OpTransfer, 2),
				done(record.OpHold, 3),
				done(record.OpCapture, 4),
			},
		},
		{
			Batch: true,
			Results: []ledger.Outcome{
				refusedFor(record.NonceGap),
				done(record.OpBurn, 5),
				refusedFor(record.InsufficientFunds),
				repeated,
			},
		},
	}
	for r := record.Replayed + 1; r.Known(); r++ {
		all = append(
			all,
			ledger.Outcome{Batch: true, Results: []ledger.Outcome{done(record.OpTransfer, 8), refusedFor(r)}},
		)
	}
	return all
}

// The bytes of a batch's answer never change, so that a replay is identical in every release.
func TestBatchBytesAreFrozen(t *testing.T) {
	for version, file := range map[uint8]string{record.ReceiptVersion: "v1.batch.ndjson", 0: "v2.batch.ndjson"} {
		frozen(t, filepath.Join("..", "..", "testdata", "receipts", file), batchLines(t, version))
	}
}

// batchLines returns the answers of the renderer with the given version.
func batchLines(t *testing.T, version uint8) (lines [][]byte) {
	for _, out := range goldenBatches() {
		out.Receipt.Version = version
		first, status := batchAnswer(out)
		lines = append(lines, first)
		want := http.StatusOK
		for i := range out.Results {
			if out.Results[i].Reject != nil {
				want = http.StatusMultiStatus
			} else {
				out.Results[i].Replayed = true
			}
		}
		again, same := batchAnswer(out)
		if !bytes.Equal(again, first) || same != status || status != want {
			t.Errorf("again %d %s\nfirst %d %s, want %d", same, again, status, first, want)
		}
		if !json.Valid(first) {
			t.Errorf("%s is no JSON", first)
		}
	}
	return lines
}

// A minimal answer has the status and the txid of each op, and the errors and the status of the
// whole answer. The root is that of the batch; an op of an earlier batch has its own.
func TestMinimalAnswer(t *testing.T) {
	earlier := done(record.OpTransfer, 1)
	earlier.Receipt.Batch, earlier.Receipt.Root = 2, b3.Sum([]byte("earlier"))
	mixed := ledger.Outcome{Batch: true, Results: []ledger.Outcome{earlier, done(record.OpTransfer, 8)}}
	for _, out := range append(goldenBatches(), mixed) {
		whole, status := batchAnswer(out)
		short, same := minimalAnswer(out)
		var want, got walletapi.BatchAnswer
		if err := errors.Join(json.Unmarshal(whole, &want), json.Unmarshal(short, &got)); err != nil || same != status {
			t.Fatalf("%d %s: %v", same, short, err)
		}
		for i := range want.Results {
			w := &want.Results[i]
			if w.Error != nil {
				continue
			}
			r := out.Results[i].Receipt
			w.TxID, w.Receipt = r.TxID.String(), nil
			if r.Batch == 2 {
				w.Root = r.Root.String()
			} else {
				want.Root = r.Root.String()
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n%+v, want\n%+v", short, got, want)
		}
	}
}

// Prefer is a list of preferences with parameters, in one or several lines. The first "return"
// counts.
func TestPrefersMinimal(t *testing.T) {
	for _, tt := range []struct {
		lines []string
		want  bool
	}{
		{nil, false}, {[]string{""}, false}, {[]string{"return=minimal"}, true}, {[]string{`Return = "minimal"; a=b`}, true},
		{[]string{"wait=10, return=minimal"}, true}, {[]string{"respond-async", "return=minimal"}, true},
		{[]string{"return=representation, return=minimal"}, false}, {[]string{"returned=minimal"}, false}, {[]string{"return"}, false},
	} {
		if got := prefersMinimal(tt.lines); got != tt.want {
			t.Errorf("%q: %v", tt.lines, got)
		}
	}
}

// No refused op of a batch is marked retryable. Only a nonce that is ahead has a detail with the
// next step.
func TestARefusedOpNeedsAnotherRequest(t *testing.T) {
	for r := record.Replayed + 1; r.Known(); r++ {
		raw, _ := batchAnswer(
			ledger.Outcome{Batch: true, Results: []ledger.Outcome{done(record.OpTransfer, 8), refusedFor(r)}},
		)
		var got walletapi.BatchAnswer
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if e := got.Results[1].Error; e.Retryable || (e.Detail != "") != (r == record.NonceGap) {
			t.Errorf("%s: %+v", r, e)
		}
	}
}

// Every refusal by a rule of the ledger has a client error status, and its words in old batches.
func TestStatuses(t *testing.T) {
	for r := record.Replayed + 1; r.Known(); r++ {
		if status := walletapi.Refusals.Find(r.String(), "").Status; status < 400 || status > 499 {
			t.Errorf("%s: %d", r, status)
		}
		if words, known := told[r.String()]; !known || words.status != walletapi.Refusals.Find(r.String(), "").Status {
			t.Errorf("%s: batches have %+v", r, words)
		}
	}
}
