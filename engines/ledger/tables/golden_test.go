package tables

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/store"
	"ronbox/store/storetest"
)

// TestRowsAreFrozen compares the encoding of every kind of row with the golden file. These bytes
// are in users' files, so existing lines never change: a new layout gets a new version and new
// lines.
func TestRowsAreFrozen(t *testing.T) {
	tx := storetest.NewTx(t, Buckets()...)
	do(t, tx, goldenRows)
	var text strings.Builder
	for _, b := range Buckets() {
		if b.Subs {
			continue
		}
		for k, v := range tx.Reader().Range(b, nil, nil) {
			text.WriteString(strings.TrimSpace(fmt.Sprintf("%s %x %x", b.Name, k, v)) + "\n")
		}
	}
	want, err := os.ReadFile("testdata/rows.txt")
	if err != nil || text.String() != string(want) {
		t.Errorf("rows are\n%swant\n%s%v", text.String(), want, err)
	}
}

func goldenRows(_ store.Reader, w *store.Writes) {
	amount := func(n uint64) engines.Amount { return engines.AmountOf(n, n<<8|1) }
	state := record.State{
		CreditsPosted: amount(1),
		DebitsPosted:  amount(2),
		DebitsHeld:    amount(3),
		CreditsHeld:   amount(4),
		DayDebits:     amount(5),
		LastSeq:       0x0607,
		Day:           20_000,
	}
	rec := record.Record{
		Op:     record.OpTransfer,
		Seq:    0x0607,
		Batch:  0x0203,
		At:     1_767_225_600_000_000_000,
		Asset:  1,
		Amount: amount(9),
		From:   2,
		To:     3,
		Nonce:  4,
		Images: []record.Image{{Account: 2, Asset: 1, State: state, Prev: 5}},
	}
	head := Head{Batches: 0x01f8, Accounts: 0x0809, Assets: 0x0a, OpenHolds: 0x0b0c}
	for no := head.Batches + 1; no <= rec.Batch; no++ {
		h := record.Batch{
			No:     no,
			First:  rec.Seq - rec.Batch + no,
			Count:  1,
			At:     rec.At,
			Merkle: b3.Sum([]byte("m")),
			Prev:   b3.Sum([]byte("p")),
		}
		raw := rec.Append(nil)
		if no != rec.Batch {
			raw = []byte{byte(no)}
		}
		PutBatch(w, &head, &h, [][]byte{raw})
	}
	PutHead(w, head)
	PutGenesis(w, StoreKey{1, 2, 3})
	PutMoved(w, MovedKey{Day: 20_000, Token: [8]byte{1, 2, 3}, Asset: 0x0a}, amount(7))
	PutFlushed(w, Flushed{Seq: 0x0606, Batches: 0x0202})
	PutName(w, 0x0809, "user/alice")
	PutAsset(w, 0x0a, "ron")
	PutBalance(w, StateKey{0x0809, 0x0a}, Balance{State: state, Postings: 0x0d0e})
	PutAccount(w, 0x0809, Account{
		Account: record.Account{
			LastNonce:    1,
			LastNonceSeq: 2,
			OpenedSeq:    3,
			Flags:        record.Frozen | record.NoCredit,
		},
		LastSeq: 4,
	})
	PutRecentBalance(w, StateKey{0x080a, 0x0a}, Balance{State: state, Postings: 0x0d0f})
	PutRecentAccount(w, 0x080a, Account{Account: record.Account{OpenedSeq: 5}, LastSeq: 6})
	open := Hold{From: 1, To: 2, Asset: 3, Amount: amount(6), At: 7, Expires: 8}
	PutHold(w, 0x0f, open)
	closed := open
	closed.Closed, closed.Closing = record.OpCapture, 0x11
	PutHold(w, 0x10, closed)
	PutOnce(w, OnceKey{Key: [16]byte{1}}, Once{Seq: 2, Digest: b3.Sum([]byte("o"))})
	PutOnce(w, OnceKey{Guard: true, Key: [16]byte{2}}, Once{Seq: 3, Digest: b3.Digest{4}})
	PutMark(w, Mark{MarkKey{StateKey{0x0809, 0x0a}, 13}, 0x0505})
	PutScale(w, 0x0a, Scale{Seq: 0x0607, Decimals: 18})
	PutLogNodes(w, merkle.LogNode{Pos: 0x12, Hash: b3.Sum([]byte("n"))})
}
