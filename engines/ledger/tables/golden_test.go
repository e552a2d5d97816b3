package tables

import (
	"fmt"
	"os"
	"reflect"
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

func goldenRows(r store.Reader, w *store.Writes) {
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
	PutHorizon(w, Horizon{
		Period: 1, Seq: 0x0203, Batch: 0x0102, At: rec.At, LastRoot: b3.Sum([]byte("l")), Accounts: 4, Assets: 5,
		Generation: 6, Statement: b3.Sum([]byte("s")),
	})
	PutPeriod(w, 1, Period{
		Statement: "{}", CloseSeq: 7, ClosedAt: rec.At, File: "/p", FileB3: b3.Sum([]byte("f")),
		ContentB3: b3.Sum([]byte("c")), Bytes: 8, Copies: 9,
	})
	account := BaseAccount{Account: Account{LastSeq: 4}, OpenedAt: 5, LastTx: rec.TxID()}
	account.OpenedSeq = 3
	PutBaseAccount(w, 6, 0x0809, account)
	PutBaseBalance(w, 6, StateKey{0x0809, 0x0a}, Balance{State: state, Postings: 0x0d0e})
	PutBaseAsset(w, 6, 0x0a, BaseAsset{Seq: 5, DeclaredAt: 6, Scale: Scale{Seq: 7, Decimals: 2}})
	PutBaseOnce(w, 6, OnceKey{Guard: true, Key: [16]byte{2}}, Once{Seq: 3, Digest: b3.Digest{4}})
	PutBaseHold(w, 6, 0x0f, goldenHold(rec))
	m := merger{r: r, w: w}
	m.add(newEntry([16]byte{5}, 1))
	m.add(newEntry([16]byte{6}, 0x0203))
	m.end()
}

func goldenHold(rec record.Record) BaseHold {
	header := record.Batch{No: rec.Batch, First: rec.Seq, Count: 1, At: rec.At, Merkle: b3.Sum([]byte("m"))}
	return BaseHold{record.Inclusion{
		Record: rec.Append(nil), Index: 0, Path: []b3.Digest{b3.Sum([]byte("1"))}, Header: header,
		LogPath: []b3.Digest{b3.Sum([]byte("2")), b3.Sum([]byte("3"))},
	}}
}

// TestBaseReadsWhatWasPut reads each kind of row of the base by its key and by a walk, and none of
// another generation.
func TestBaseReadsWhatWasPut(t *testing.T) {
	tx := storetest.NewTx(t, Buckets()...)
	do(t, tx, goldenRows)
	r := tx.Reader()
	b, other := BaseOf(r), BaseAt(r, 5)
	account, known := b.Account(0x0809)
	if !known || account.OpenedSeq != 3 || account.OpenedAt != 5 {
		t.Errorf("account %+v, %v", account, known)
	}
	balance, known := b.Balance(StateKey{0x0809, 0x0a})
	if !known || balance.Postings != 0x0d0e {
		t.Errorf("balance %+v, %v", balance, known)
	}
	asset, known := b.Asset(0x0a)
	if !known || asset.Scale.Decimals != 2 {
		t.Errorf("asset %+v, %v", asset, known)
	}
	once, known := b.Once(OnceKey{Guard: true, Key: [16]byte{2}})
	if !known || once.Seq != 3 {
		t.Errorf("once %+v, %v", once, known)
	}
	for seq, hold := range b.Holds(0) {
		back, known := b.Hold(seq)
		if !known || !reflect.DeepEqual(back, hold) || len(hold.LogPath) != 2 || len(hold.Path) != 1 {
			t.Errorf("hold %d is %+v, %+v", seq, hold, back)
		}
	}
	kinds := ""
	for row := range b.Rows() {
		kinds += string(row.Kind)
	}
	if kinds != "abhos" {
		t.Errorf("the rows are of kinds %s", kinds)
	}
	if _, known := other.Account(0x0809); known || b.StateRoot() == other.StateRoot() {
		t.Error("another generation has rows")
	}
}
