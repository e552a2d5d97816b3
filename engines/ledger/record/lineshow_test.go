package record

import (
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

// The readable members of a line have the same values as its bytes, number by number, for any JSON
// reader.
func TestLineShows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLine(t)
		text := l.Append(nil)
		switch r, b := &l.Record, &l.Batch; l.Kind {
		case LineFormat:
			var got struct {
				Format string    `json:"format"`
				From   uint64    `json:"from_seq"`
				Prev   b3.Digest `json:"prev_root"`
			}
			want := got
			want.Format, want.From, want.Prev = "ronbox-ledger-export-v1", l.From, l.Prev
			shows(t, text, &got, want)
		case LineBatch:
			var got struct {
				No    uint64    `json:"batch"`
				First uint64    `json:"first_seq"`
				Count uint64    `json:"count"`
				At    string    `json:"ts"`
				Root  b3.Digest `json:"root"`
			}
			want := got
			want.No, want.First, want.Count, want.At, want.Root = b.No, b.First, b.Count, string(
				appendStamp(nil, b.At),
			), b.Root()
			shows(t, text, &got, want)
		case LineRecord:
			var got struct {
				Seq     uint64         `json:"seq"`
				Batch   uint64         `json:"batch"`
				TxID    TxID           `json:"txid"`
				Op      string         `json:"op"`
				From    string         `json:"from"`
				To      string         `json:"to"`
				Asset   string         `json:"asset"`
				Amount  engines.Amount `json:"amount_minor"`
				Nonce   uint64         `json:"nonce"`
				Hold    uint64         `json:"hold_seq"`
				Expires string         `json:"expires"`
				Idem    string         `json:"idem"`
				Memo    string         `json:"memo"`
				At      string         `json:"ts"`
			}
			want := got
			want.Seq, want.Batch, want.TxID, want.Op, want.Nonce, want.Hold, want.Idem, want.Memo = r.Seq, r.Batch, r.TxID(), r.Op.String(), r.Nonce, r.Hold, r.Idem, r.Memo
			want.From, want.To, want.Asset = l.Names.From, l.Names.To, l.Names.Asset
			if want.At = string(appendStamp(nil, r.At)); r.Op.MovesMoney() {
				want.Amount = r.Amount
			}
			if r.Expires != 0 {
				want.Expires = string(appendStamp(nil, r.Expires))
			}
			shows(t, text, &got, want)
		}
	})
}

// shows compares the members of text with want.
func shows[T comparable](t *rapid.T, text []byte, got *T, want T) {
	t.Helper()
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if *got != want {
		t.Fatalf("%s\nshows %+v, want %+v", text, *got, want)
	}
}
