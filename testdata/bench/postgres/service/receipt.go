package main

import (
	"fmt"
	"strconv"
	"time"
)

// receipt says what was done. The database has all of it, so that it is the same whenever it is given.
type receipt struct {
	*transfer
	key        string // "" of a batch's
	seq, nonce int64
	at         time.Time
}

func (r receipt) appendJSON(out []byte) []byte {
	out = fmt.Appendf(out, `{"txid":"tx_%020d","op":"transfer","from":"`, r.seq)
	out = append(append(out, r.From...), `","to":"`...)
	out = append(append(out, r.To...), `","asset":"`...)
	out = append(append(out, asset...), `","amount_minor":"`...)
	out = append(append(out, r.Amount...), `","nonce":`...)
	out = strconv.AppendInt(out, r.nonce, 10)
	if r.key != "" {
		out = append(append(append(out, `,"idem":"`...), r.key...), '"')
	}
	out = r.at.UTC().AppendFormat(append(out, `,"ts":"`...), "2006-01-02T15:04:05.000Z")
	out = strconv.AppendInt(append(out, `","ledger":{"seq":`...), r.seq, 10)
	return append(out, "}}"...)
}

// appendBatch appends the answer to a batch.
func appendBatch(out []byte, all []transfer, seqs, nonces []int64, at time.Time) []byte {
	out = append(out, `{"results":[`...)
	for i := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(append(out, `{"index":`...), int64(i), 10)
		out = append(out, `,"status":200,"receipt":`...)
		out = append(receipt{&all[i], "", seqs[i], nonces[i], at}.appendJSON(out), '}')
	}
	return append(out, "]}"...)
}
