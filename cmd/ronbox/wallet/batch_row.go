package wallet

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	walletapi "ronbox/httpapi/wallet"
)

// batchRow is one line of a batch file: an operation, and the account whose nonce it takes.
type batchRow struct {
	line  int // of the file
	op    walletapi.BatchOp
	payer string // "" for what takes no nonce
	auto  bool   // the nonce is left to the verb
	id    rowID  // see identify
}

// fieldError is the fault of one member of one line.
type fieldError struct {
	field  string
	reason error
}

func (e *fieldError) Error() string { return e.field + ": " + e.reason.Error() }

var (
	errMissing = errors.New("missing")
	errForeign = errors.New("this op has no such member")
)

// members says what an op may have: all of must, any of may.
type members struct{ must, may []string }

var debitMay = []string{"nonce", "memo", "valid_until"}

// membersOf is the table of the ops that a batch may hold.
func membersOf(op string) (members, bool) {
	switch op {
	case walletapi.OpIssue:
		return members{[]string{"to", "asset", "amount_minor"}, debitMay}, true
	case walletapi.OpTransfer:
		return members{[]string{"from", "to", "asset", "amount_minor"}, debitMay}, true
	case walletapi.OpBurn:
		return members{[]string{"from", "asset", "amount_minor"}, debitMay}, true
	case walletapi.OpHold:
		return members{[]string{"from", "to", "asset", "amount_minor", "expires_in_s"}, debitMay}, true
	case walletapi.OpCapture:
		return members{[]string{"hold"}, []string{"amount_minor"}}, true
	case walletapi.OpRelease:
		return members{[]string{"hold"}, nil}, true
	}
	return members{}, false
}

// batchColumns are the members of an operation, in the order in which faults are told.
var batchColumns = []string{"op", "from", "to", "asset", "amount_minor", "nonce", "expires_in_s", "hold", "memo", "valid_until"}

// member points at a member of an operation: a string, or a number from 1 on.
func member(op *walletapi.BatchOp, column string) (text *string, number *uint64) {
	switch column {
	case "op":
		return &op.Op, nil
	case "from":
		return &op.From, nil
	case "to":
		return &op.To, nil
	case "asset":
		return &op.Asset, nil
	case "amount_minor":
		return &op.AmountMinor, nil
	case "nonce":
		return nil, &op.Nonce
	case "expires_in_s":
		return nil, &op.ExpiresInS
	case "hold":
		return &op.Hold, nil
	case "memo":
		return &op.Memo, nil
	}
	return &op.ValidUntil, nil
}

// textOf gives a member as text, "" when it is missing.
func textOf(op *walletapi.BatchOp, column string) string {
	text, number := member(op, column)
	switch {
	case text != nil:
		return *text
	case *number == 0:
		return ""
	}
	return cli.Decimal(*number)
}

// setText sets a member; "" leaves it out.
func setText(op *walletapi.BatchOp, column, s string) (err error) {
	text, number := member(op, column)
	if text != nil {
		*text = s
	} else if *number, err = wholeNumber(s); err != nil {
		return &fieldError{column, err}
	}
	return nil
}

func wholeNumber(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || text[0] == '0' || text[0] == '+' {
		return 0, fmt.Errorf("%q is no whole number above 0", text)
	}
	return n, nil
}

// newBatchRow checks an operation as the node will, as far as that can be done here.
func newBatchRow(line int, op walletapi.BatchOp) (batchRow, error) {
	m, known := membersOf(op.Op)
	if !known {
		return batchRow{}, &fieldError{"op", fmt.Errorf("%q: must be issue, transfer, burn, hold, capture or release", op.Op)}
	}
	for _, column := range batchColumns[1:] {
		text, must := textOf(&op, column), slices.Contains(m.must, column)
		switch {
		case text == "" && must:
			return batchRow{}, &fieldError{column, errMissing}
		case text != "" && !must && !slices.Contains(m.may, column):
			return batchRow{}, &fieldError{column, errForeign}
		case text == "":
			continue
		}
		if err := checkColumn(&op, column, text); err != nil {
			return batchRow{}, &fieldError{column, err}
		}
	}
	if op.From != "" && op.From == op.To {
		return batchRow{}, &fieldError{"to", errors.New("is from: an account cannot pay itself")}
	}
	row := batchRow{line: line, op: op, payer: payerOf(&op)}
	row.auto = row.payer != "" && op.Nonce == 0
	return row, nil
}

// checkColumn judges one member that is there.
func checkColumn(op *walletapi.BatchOp, column, text string) error {
	switch column {
	case "from", "to":
		if engines.IsSystemAccount(text) {
			return errSystemAccount
		}
		return engines.CheckAccount(text)
	case "asset":
		return engines.CheckAsset(text)
	case "amount_minor":
		n, err := engines.ParseAmount(text)
		if err == nil && n.IsZero() {
			err = errors.New("must be above 0")
		}
		return err
	case "expires_in_s":
		if longest := uint64(longestHold / time.Second); op.ExpiresInS > longest {
			return fmt.Errorf("must be 1 to %d seconds", longest)
		}
	case "hold":
		_, err := record.ParseTxID(text)
		return err
	case "memo":
		return record.CheckMemo(text)
	case "valid_until":
		if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
			return errors.New("must be a time such as 2026-01-02T15:04:05Z")
		}
	}
	return nil
}

// checkNonces refuses an account whose nonces are left to the verb in some lines and given in others.
func checkNonces(name string, rows []batchRow) error {
	first := map[string]*batchRow{}
	for i := range rows {
		r := &rows[i]
		if r.payer == "" {
			continue
		}
		f := cmp.Or(first[r.payer], r)
		if first[r.payer] = f; f.auto != r.auto {
			return cli.Fail(cli.ExitFileUnfit, "malformed", "give it in every line of that account, or in none",
				"%s:%d: nonce: line %d of the same payer, %s, does the other", name, r.line, f.line, r.payer)
		}
	}
	return nil
}

// rowID identifies a row by its members and by its place among the rows with the same members. The nonce that the verb
// chooses is left out, so that a row is the same in every run, in a copy of its file, and in a file that has grown.
type rowID [16]byte

// identify gives each row its identity.
func identify(rows []batchRow) error {
	equal := make(map[rowID]uint32, len(rows))
	for i := range rows {
		raw, err := json.Marshal(rows[i].op, json.Deterministic(true))
		if err != nil {
			return err
		}
		says := shortSum(raw)
		rows[i].id = shortSum(says[:], []byte(cli.Decimal(uint64(equal[says]))))
		equal[says]++
	}
	return nil
}

func shortSum(parts ...[]byte) (id rowID) {
	h := b3.New()
	for _, p := range parts {
		_, _ = h.Write(p)
	}
	sum := h.Sum32()
	return rowID(sum[:len(id)])
}

// inputDigest is the identity of a file: its rows in order, however they are written down.
func inputDigest(rows []batchRow) string {
	h := b3.New()
	for i := range rows {
		_, _ = h.Write(rows[i].id[:])
	}
	return h.Sum32().String()
}

// ownerOf is the prefix of the idempotency keys of all requests of a run of this name.
func ownerOf(name string) string {
	sum := shortSum([]byte("ronbox wallet batch v2\n"), []byte(name))
	return "batch-" + hex.EncodeToString(sum[:8]) + "-"
}

// key names a request by its rows: it is the same in every run of the name, whatever the nonces.
func (b *batchRun) key(rows []int) string {
	h := b3.New()
	for _, i := range rows {
		_, _ = h.Write(b.rows[i].id[:])
	}
	sum := h.Sum32()
	return b.owner + hex.EncodeToString(sum[:16])
}
