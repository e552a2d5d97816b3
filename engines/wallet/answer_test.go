package wallet

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

var update = flag.Bool("update", false, "write the lines that golden files lack at their end; what has a line is never rewritten")

// frozen compares lines with a golden file.
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

// done is the outcome of an op that was accepted in a golden batch, the record seq.
func done(op record.Op, seq uint64) ledger.Outcome {
	const at = 1_767_323_045_678_901_234 // 2026-01-02T03:04:05.678901234Z
	r := record.Receipt{
		TxID: record.NewTxID(at, seq, 0xbeef), Op: op, From: "alice", To: "shop:till/7_a-B", Asset: "ron", Amount: engines.AmountOf(1, 25),
		Nonce: seq, Idem: "batch-7.retry:1_a", At: at, Seq: seq, Batch: 3, Root: b3.Sum([]byte("root")), Version: record.ReceiptVersion,
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

func refused(code record.Result) ledger.Outcome {
	return ledger.Outcome{Reject: &ledger.Reject{Code: code}}
}

// goldenBatches are an atomic batch, an independent one, and one for each reason to refuse an op, in the order of their numbers. A new reason
// comes at the end.
func goldenBatches() []ledger.Outcome {
	repeated := done(record.OpTransfer, 7)
	repeated.Replayed = true
	all := []ledger.Outcome{
		{Batch: true, Atomic: true, Results: []ledger.Outcome{done(record.OpIssue, 1), done(record.OpTransfer, 2), done(record.OpHold, 3), done(record.OpCapture, 4)}},
		{Batch: true, Results: []ledger.Outcome{refused(record.NonceGap), done(record.OpBurn, 5), refused(record.InsufficientFunds), repeated}},
	}
	for r := record.Replayed + 1; r.Known(); r++ {
		all = append(all, ledger.Outcome{Batch: true, Results: []ledger.Outcome{done(record.OpTransfer, 8), refused(r)}})
	}
	return all
}

// The bytes of a batch's answer do not change: a repetition is told what the first one was told, whatever program tells it.
func TestBatchBytesAreFrozen(t *testing.T) {
	var lines [][]byte
	for _, out := range goldenBatches() {
		first, err := answerOf(&out)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, first.Body)
		status := statusOK
		for i := range out.Results {
			if out.Results[i].Reject != nil {
				status = statusMulti
			} else {
				out.Results[i].Replayed = true
			}
		}
		out.Replayed = true
		again, err := answerOf(&out)
		if err != nil || !again.Replayed || !bytes.Equal(again.Body, first.Body) || again.Status != first.Status || first.Status != status || first.Replayed {
			t.Errorf("again %d %s, %v\nwant  %d %s", again.Status, again.Body, err, status, first.Body)
		}
		if !json.Valid(first.Body) {
			t.Errorf("%s is no JSON", first.Body)
		}
	}
	frozen(t, filepath.Join("..", "..", "testdata", "receipts", "v1.batch.ndjson"), lines)
}
