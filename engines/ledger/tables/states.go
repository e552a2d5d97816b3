package tables

import (
	"bytes"
	"encoding/binary"
	"iter"

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

// Balance is an account in an asset: its state after the record State.LastSeq, and how many records have touched it.
type Balance struct {
	State    record.State
	Postings uint64
}

// Account is an account apart from its balances, after the record LastSeq.
type Account struct {
	record.Account
	LastSeq uint64 // that opened it, changed its flags or used a nonce of it
}

// Row is one row of ledger/state or ledger/recent: of an account if the key's asset is 0, else of a balance.
type Row struct {
	Balance Balance
	Account Account
}

// Versions of the rows: the two kinds share a bucket, so that an account and its balances share a page.
const (
	balanceV1 = 0x01
	accountV1 = 0x81
)

const (
	balanceSize = record.StateSize + 8
	accountSize = 4*8 + 1
)

var (
	balances = store.NewTable(bState, stateKeys(), fixed(balanceV1, balanceSize, putBalance, getBalance)).Summed().Alone()
	accounts = store.NewTable(bState, stateKeys(), fixed(accountV1, accountSize, putAccount, getAccount)).Summed().Alone()
)

// GetBalance reads an account in an asset.
func GetBalance(r store.Reader, account uint64, asset uint32) (Balance, bool) {
	return balances.Get(r, StateKey{account, asset})
}

// GetAccount reads an account apart from its balances.
func GetAccount(r store.Reader, account uint64) (Account, bool) {
	return accounts.Get(r, StateKey{account, 0})
}

// PutBalance writes an account in an asset. Its marks must have been written, or be written by the same command.
func PutBalance(w *store.Writes, k StateKey, b Balance) { balances.Put(w, k, b) }

// PutAccount writes an account apart from its balances.
func PutAccount(w *store.Writes, account uint64, a Account) {
	accounts.Put(w, StateKey{account, 0}, a)
}

// States walks accounts and balances as ledger/state has them, in the order of the file, from a key on.
func States(r store.Reader, from StateKey) iter.Seq2[StateKey, Row] {
	return stateRows(r, bState, from, nil)
}

// stateRows walks the rows of a bucket that has both kinds. One that does not decode is told to fault and passed over, under the zero key if its
// own does not decode; without fault it ends the view.
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
