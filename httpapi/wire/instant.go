package wire

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// InstantLayout is RFC 3339 in UTC with three digits of a second's fraction.
const InstantLayout = "2006-01-02T15:04:05.000Z"

// Instant is a time that is always written with three decimals, as ts of a receipt, so that times
// of the same length can be compared as texts.
type Instant struct{ time.Time }

// MarshalJSONTo implements json.MarshalerTo.
func (t Instant) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteToken(jsontext.String(t.UTC().Format(InstantLayout)))
}
