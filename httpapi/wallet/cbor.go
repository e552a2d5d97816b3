package wallet

import (
	"math"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"ronbox/httpapi"
)

// The simple values false and true. The numbers 24 to 31 are not simple values.
const (
	simpleFalse = 20
	simpleTrue  = 21
	noSimple    = 24
	moreSimple  = 32
)

// cborMode accepts the equivalents of JSON: text keys without duplicates, no tags, no simple values
// but false and true, which the library would take as numbers, and definite lengths only.
var cborMode = sync.OnceValues(func() (cbor.DecMode, error) {
	var reject []func(*cbor.SimpleValueRegistry) error
	for v := range math.MaxUint8 + 1 {
		if v != simpleFalse && v != simpleTrue && (v < noSimple || v >= moreSimple) {
			reject = append(reject, cbor.WithRejectedSimpleValue(cbor.SimpleValue(v)))
		}
	}
	simple, err := cbor.NewSimpleValueRegistryFromDefaults(reject...)
	if err != nil {
		return nil, err
	}
	return cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		SimpleValues:      simple,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
		MaxArrayElements:  maxBatchOps,
	}.DecMode()
})

// readCBOR reads a batch in CBOR. The library does not report the place of a fault, so a malformed
// body is read again as JSON, which names the member.
func readCBOR(body []byte) (batch, error) {
	if b, ok := readSound(body); ok {
		return b, nil
	}
	body, err := httpapi.FromCBOR(body)
	if err != nil {
		return batch{}, err
	}
	return readBatch(body)
}

// readSound reads a batch with the library, and reports whether it is well-formed.
func readSound(body []byte) (b batch, ok bool) {
	m, err := cborMode()
	if err != nil {
		return b, false
	}
	var raw struct {
		Mode mode              `json:"mode"`
		Ops  []cbor.RawMessage `json:"ops"`
	}
	if err := m.Unmarshal(body, &raw); err != nil || len(raw.Ops) == 0 || raw.Mode.check() != nil {
		return b, false
	}
	b = batch{raw.Mode, make(orders, len(raw.Ops))}
	var one order
	for i := range raw.Ops {
		one = newOrder()
		if err := m.Unmarshal(raw.Ops[i], &one); err != nil {
			return b, false
		}
		var bad *httpapi.BodyError
		if b.Ops[i], bad = one.validate(0); bad != nil {
			return b, false
		}
	}
	return b, true
}
