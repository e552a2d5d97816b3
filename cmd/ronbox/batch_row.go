package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
)

// batchRow is one line of a batch file: an operation, and the account whose nonce it takes.
type batchRow struct {
	line  int // of the file
	op    wire.BatchOp
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
	case wire.OpIssue:
		return members{[]string{"to", "asset", "amount_minor"}, debitMay}, true
	case wire.OpTransfer:
		return members{[]string{"from", "to", "asset", "amount_minor"}, debitMay}, true
	case wire.OpBurn:
		return members{[]string{"from", "asset", "amount_minor"}, debitMay}, true
	case wire.OpHold:
		return members{[]string{"from", "to", "asset", "amount_minor", "expires_in_s"}, debitMay}, true
	case wire.OpCapture:
		return members{[]string{"hold"}, []string{"amount_minor"}}, true
	case wire.OpRelease:
		return members{[]string{"hold"}, nil}, true
	}
	return members{}, false
}

// batchColumns are the members of an operation, in the order in which faults are told.
var batchColumns = []string{"op", "from", "to", "asset", "amount_minor", "nonce", "expires_in_s", "hold", "memo", "valid_until"}

// textOf gives a member as text, "" when it is not there.
func textOf(op *wire.BatchOp, column string) string {
	switch column {
	case "op":
		return op.Op
	case "from":
		return op.From
	case "to":
		return op.To
	case "asset":
		return op.Asset
	case "amount_minor":
		return op.AmountMinor
	case "nonce":
		return number(op.Nonce)
	case "expires_in_s":
		return number(op.ExpiresInS)
	case "hold":
		return op.Hold
	case "memo":
		return op.Memo
	}
	return op.ValidUntil
}

func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return decimal(n)
}

// setText is textOf the other way round; "" leaves the member out.
func setText(op *wire.BatchOp, column, text string) (err error) {
	switch column {
	case "op":
		op.Op = text
	case "from":
		op.From = text
	case "to":
		op.To = text
	case "asset":
		op.Asset = text
	case "amount_minor":
		op.AmountMinor = text
	case "nonce":
		op.Nonce, err = wholeNumber(text)
	case "expires_in_s":
		op.ExpiresInS, err = wholeNumber(text)
	case "hold":
		op.Hold = text
	case "memo":
		op.Memo = text
	case "valid_until":
		op.ValidUntil = text
	}
	if err != nil {
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
func newBatchRow(line int, op wire.BatchOp) (batchRow, error) {
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
	row := batchRow{line: line, op: op, payer: op.From}
	if op.Op == wire.OpIssue {
		row.payer = engines.IssuanceAccount(op.Asset)
	}
	row.auto = row.payer != "" && op.Nonce == 0
	return row, nil
}

// checkColumn judges one member that is there.
func checkColumn(op *wire.BatchOp, column, text string) error {
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
			return failed(exitFailed, "malformed", "give it in every line of that account, or in none",
				"%s:%d: nonce: line %d of the same payer, %s, does the other", name, r.line, f.line, r.payer)
		}
	}
	return nil
}

// faults collects what is wrong with a file, so that a person corrects it once.
type faults struct {
	name string
	told []string
	more int
}

// mostFaults is how many are told: after so many another look at what wrote the file helps more.
const mostFaults = 20

func (f *faults) add(line int, err error) {
	if len(f.told) == mostFaults {
		f.more++
		return
	}
	f.told = append(f.told, fmt.Sprintf("%s:%d: %v", f.name, line, err))
}

func (f *faults) err() error {
	if len(f.told) == 0 {
		return nil
	}
	text := strings.Join(f.told, "\n")
	if f.more > 0 {
		text += fmt.Sprintf("\nand %d more", f.more)
	}
	e := failed(exitFailed, "malformed", "nothing was sent: correct the lines that are named", "%s", text)
	e.details = map[string]any{"faults": f.told, "more": f.more}
	return e
}
