package wallet

import (
	"strconv"

	"ronbox/engines/ledger"
)

// Statuses of an answer.
const (
	statusOK    = 200
	statusMulti = 207
)

// receiptRoom is what a receipt takes as a rule.
const receiptRoom = 640

// answerOf is an outcome in the bytes to send. What the rules refuse is a *ledger.Reject; of a batch that stands or falls whole an
// *IndexError around it.
func answerOf(out *ledger.Outcome) (Answer, error) {
	if out.Reject != nil {
		if len(out.Results) > 0 {
			return Answer{}, &IndexError{Index: out.Reject.Index, Err: out.Reject}
		}
		return Answer{}, out.Reject
	}
	if out.Batch {
		return batchAnswer(out), nil
	}
	return Answer{Body: out.Receipt.AppendJSON(make([]byte, 0, receiptRoom)), Status: statusOK, Replayed: out.Replayed}, nil
}

// batchAnswer lists the results of a batch. An op that was refused shows its code alone, since no more of it is kept: so the bytes are the
// same whenever they are asked for.
//
// It is renderer 1, with Code.append, rejectCodes and the renderer of receipts: none of them is ever edited, since a repetition must get the
// bytes that the first answer had, and golden vectors hold them. A batch that has a record has a receipt too, whose Version says which renderer
// its answer takes; one that has none is never asked for again and takes the newest. So another form begins with a new version of records: it
// stands beside this one, with a table of its own, and which one renders is decided here.
func batchAnswer(out *ledger.Outcome) Answer {
	a := Answer{Status: statusOK, Replayed: out.Replayed}
	b := append(make([]byte, 0, receiptRoom*len(out.Results)+32), `{"results":[`...)
	for i := range out.Results {
		one := &out.Results[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"index":`...), int64(i), 10)
		if one.Reject == nil {
			b = one.Receipt.AppendJSON(append(b, `,"status":200,"receipt":`...))
		} else {
			a.Status = statusMulti
			b = rejectCode(one.Reject.Code).append(b)
		}
		b = append(b, '}')
	}
	a.Body = append(b, `]}`...)
	return a
}

// append appends the members status and error of a result, as renderer 1 has them.
func (c Code) append(b []byte) []byte {
	b = strconv.AppendInt(append(b, `,"status":`...), int64(c.Status), 10)
	b = append(append(append(b, `,"error":{"code":"`...), c.Name...), `","reason":"`...)
	b = append(append(b, c.Reason...), `","retryable":`...)
	return append(strconv.AppendBool(b, c.Retryable), '}')
}
