package tables

import (
	"bytes"
	"encoding/binary"
	"iter"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// StateKey names a balance: an account in an asset. Asset 0 is the account itself.
type StateKey struct {
	Account uint64
	Asset   uint32
}

// Less is the order of the file: an account comes before its assets, and they lie side by side.
func (k StateKey) Less(l StateKey) bool {
	return k.Account < l.Account || k.Account == l.Account && k.Asset < l.Asset
}

// Balance is an account in an asset: its state after the record State.LastSeq, and how many records
// have touched it.
type Balance struct {
	State    record.State
	Postings uint64
}

// Account is an account apart from its balances, after the record LastSeq.
type Account struct {
	record.Account
	LastSeq uint64 // that opened it, changed its flags or used a nonce of it
}

// Row is one row of ledger/state or ledger/recent: of an account if the key's asset is 0, else of a
// balance.
type Row struct {
	Balance Balance
	Account Account
}

// Versions of the rows: the two kinds share a bucket, so that an account and its balances share a
// page.
const (
	balanceV1 = 0x01
	accountV1 = 0x81
)

const (
	balanceSize = record.StateSize + 8
	accountSize = 4*8 + 1
)

var (
	balances = store.NewTable(bState, stateKeys(), fixed(balanceV1, balanceSize, putBalance, getBalance)).
			Summed().
			Alone()
	accounts = store.NewTable(bState, stateKeys(), fixed(accountV1, accountSize, putAccount, getAccount)).
			Summed().
			Alone()
)

// GetBalance reads an account in an asset.
func GetBalance(r store.Reader, account uint64, asset uint32) (Balance, bool) {
	return balances.Get(r, StateKey{account, asset})
}

// GetAccount reads an account apart from its balances.
func GetAccount(r store.Reader, account uint64) (Account, bool) {
	return accounts.Get(r, StateKey{account, 0})
}

// PutBalance writes an account in an asset. Its marks must have been written, or be written by the
// same command.
func PutBalance(w *store.Writes, k StateKey, b Balance) { balances.Put(w, k, b) }

// PutAccount writes an account apart from its balances.
func PutAccount(w *store.Writes, account uint64, a Account) {
	accounts.Put(w, StateKey{account, 0}, a)
}

// States walks accounts and balances as ledger/state has them, in the order of the file, from a key
// on.
func States(r store.Reader, from StateKey) iter.Seq2[StateKey, Row] {
	return stateRows(r, bState, from, nil)
}

// stateRows walks the rows of a bucket that has both kinds. One that does not decode is told to
// fault and passed over, under the zero key if its own does not decode; without fault it ends the
// view.
func stateRows(r store.Reader, b *store.Bucket, from StateKey, fault func(StateKey, error)) iter.Seq2[StateKey, Row] {
	return func(yield func(StateKey, Row) bool) {
		keys := stateKeys()
		for raw, value := range r.Range(b, keys.Append(nil, from), nil) {
			k, err := keys.Decode(raw)
			var row Row
			if err == nil {
				value, err = store.CutSum(raw, value)
			}
			if err == nil {
				row, err = decodeRow(k, value)
			}
			switch {
			case err != nil && fault == nil:
				panic(wrong(b, raw, "%w", err))
			case err != nil:
				fault(k, wrong(b, bytes.Clone(raw), "%w", err))
			case !yield(k, row):
				return
			}
		}
	}
}

func decodeRow(k StateKey, raw []byte) (row Row, err error) {
	switch {
	case len(raw) == 0:
		return row, errLength
	case k.Asset == 0 && raw[0] == accountV1 && len(raw) == 1+accountSize:
		return row, getAccount(raw[1:], &row.Account)
	case k.Asset != 0 && raw[0] == balanceV1 && len(raw) == 1+balanceSize:
		return row, getBalance(raw[1:], &row.Balance)
	}
	return row, errVersion
}

func stateKeys() store.Key[StateKey] {
	return store.Key[StateKey]{
		Append: func(dst []byte, k StateKey) []byte {
			return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(dst, k.Account), k.Asset)
		},
		Decode: func(b []byte) (StateKey, error) {
			if len(b) != 12 {
				return StateKey{}, errLength
			}
			return StateKey{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}, nil
		},
	}
}

func putBalance(b []byte, v *Balance) {
	v.State.Append(b[:0])
	le.PutUint64(b[record.StateSize:], v.Postings)
}

func getBalance(b []byte, v *Balance) (err error) {
	v.State, err = record.DecodeState(b[:record.StateSize])
	v.Postings = le.Uint64(b[record.StateSize:])
	return err
}

func putAccount(b []byte, v *Account) {
	le.PutUint64(b, v.LastNonce)
	le.PutUint64(b[8:], v.LastNonceSeq)
	le.PutUint64(b[16:], v.OpenedSeq)
	le.PutUint64(b[24:], v.LastSeq)
	b[32] = byte(v.Flags)
}

func getAccount(b []byte, v *Account) error {
	v.LastNonce, v.LastNonceSeq = le.Uint64(b), le.Uint64(b[8:])
	v.OpenedSeq, v.LastSeq = le.Uint64(b[16:]), le.Uint64(b[24:])
	if v.Flags = record.Flags(b[32]); v.Flags&^(record.Frozen|record.NoDebit|record.NoCredit|record.Closed) != 0 {
		return errNumber
	}
	return nil
}

// Rows of ledger/state lie where their keys are, so that each that changed costs a page of its own.
// Those that change often lie side by side in ledger/recent: a row there is newer than the row of
// the same key in ledger/state, if that has one. A running ledger has all of them in memory.
var (
	recentBalances = store.NewTable(bRecent, stateKeys(), fixed(balanceV1, balanceSize, putBalance, getBalance)).
			Summed()
	recentAccounts = store.NewTable(bRecent, stateKeys(), fixed(accountV1, accountSize, putAccount, getAccount)).
			Summed()
)

// PutRecentBalance writes an account in an asset beside others that change often. Its marks must
// have been written, or be written by the same command.
func PutRecentBalance(w *store.Writes, k StateKey, b Balance) { recentBalances.Put(w, k, b) }

// PutRecentAccount writes an account apart from its balances, beside others that change often.
func PutRecentAccount(w *store.Writes, account uint64, a Account) {
	recentAccounts.Put(w, StateKey{account, 0}, a)
}

// DropRecent takes a row out of those that change often: ledger/state has one as new, or gets it by
// the same command.
func DropRecent(w *store.Writes, k StateKey) { recentBalances.Delete(w, k) }

// Recents walks the table of recent rows, in the order of the file. It calls fault for a damaged
// row and skips it; the older row in ledger/state is then not valid. If fault is nil, a damaged row
// ends the view. Recents reads all pages ahead, because a boot waits for them.
func Recents(r store.Reader, fault func(StateKey, error)) iter.Seq2[StateKey, Row] {
	return func(yield func(StateKey, Row) bool) {
		store.WarmRange(r, bRecent, nil, nil)
		stateRows(r, bRecent, StateKey{}, fault)(yield)
	}
}

// MarkEvery is the number of postings between two marks of a balance, and so the most that a walk
// from a mark has to skip.
const MarkEvery = 256

// MarkKey names a mark: number n stands at posting n × MarkEvery of a balance. Postings are counted
// from 1.
type MarkKey struct {
	StateKey
	N uint64
}

// Mark is where that posting is in the journal.
type Mark struct {
	MarkKey
	Seq uint64
}

var marks = store.NewTable(bMarks, store.Key[MarkKey]{
	Append: func(dst []byte, k MarkKey) []byte {
		return binary.BigEndian.AppendUint64(stateKeys().Append(dst, k.StateKey), k.N)
	},
	Decode: func(b []byte) (k MarkKey, err error) {
		if len(b) != 20 {
			return k, errLength
		}
		k.StateKey, err = stateKeys().Decode(b[:12])
		k.N = binary.BigEndian.Uint64(b[12:])
		return k, err
	},
}, u64Value()).Summed().Alone()

// GetMark reads where a mark points.
func GetMark(r store.Reader, k MarkKey) (seq uint64, known bool) { return marks.Get(r, k) }

// PutMark writes a mark.
func PutMark(w *store.Writes, m Mark) { marks.Put(w, m.MarkKey, m.Seq) }

// Marks walks the marks in the order of the file.
func Marks(r store.Reader) iter.Seq2[MarkKey, uint64] { return marks.All(r) }

// MovedKey is the key of the amount that a token moved of an asset on a day of ledger time. Days
// come first, so that past days are at the front.
type MovedKey struct {
	Day   uint32
	Token [8]byte // hash of its id, as records have it
	Asset uint32
}

const movedKeySize = 4 + 8 + 4

var moved = store.NewTable(bMoved, store.Key[MovedKey]{
	Append: func(dst []byte, k MovedKey) []byte {
		dst = append(binary.BigEndian.AppendUint32(dst, k.Day), k.Token[:]...)
		return binary.BigEndian.AppendUint32(dst, k.Asset)
	},
	Decode: func(b []byte) (MovedKey, error) {
		if len(b) != movedKeySize {
			return MovedKey{}, errLength
		}
		return MovedKey{binary.BigEndian.Uint32(b), [8]byte(b[4:12]), binary.BigEndian.Uint32(b[12:])}, nil
	},
}, fixed(1, engines.AmountSize,
	func(b []byte, a *engines.Amount) { putAmount(b, *a) },
	func(b []byte, a *engines.Amount) error { *a = engines.AmountLE(b); return nil })).Summed().Alone()

// GetMoved reads the amount that a token moved on a day.
func GetMoved(r store.Reader, k MovedKey) engines.Amount {
	sum, _ := moved.Get(r, k)
	return sum
}

// PutMoved writes the amount that a token moved on a day.
func PutMoved(w *store.Writes, k MovedKey, sum engines.Amount) { moved.Put(w, k, sum) }

// Moved walks what tokens moved, the oldest day first.
func Moved(r store.Reader) iter.Seq2[MovedKey, engines.Amount] { return moved.All(r) }

// DropMoved takes out up to n rows of the days before day.
func DropMoved(r store.Reader, w *store.Writes, day uint32, n int) {
	for k := range moved.Range(r, MovedKey{}, MovedKey{Day: day}) {
		if n--; n < 0 {
			return
		}
		moved.Delete(w, k)
	}
}
