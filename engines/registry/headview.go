package registry

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// HeadView is HEAD and what follows from it, ready to be served. It is immutable.
type HeadView struct {
	Head        record.Head // Version 0: no genesis yet
	Origin      string
	Incarnation string // of the store
	Expiry      string // the payload's advice to consumers, "" for none
	MinVersion  uint64 // oldest version that is not pruned; 0 before genesis
	Items       record.Items
	Signers     *record.SignerSet // in force; nil before genesis
	JSON        []byte            // body of the head route
	ETag        string            // over JSON, quoted

	genesis   b3.Digest // payload_b3 of version 1
	signersB3 b3.Digest // of Signers
}

// newHeadView fills JSON and ETag.
func newHeadView(v HeadView) *HeadView {
	v.JSON = v.encode()
	v.ETag = etag(v.JSON)
	return &v
}

func (v *HeadView) encode() []byte {
	o := objectWriter{}
	o.uint("version", v.Head.Version)
	o.text("payload_b3", v.Head.PayloadB3.String())
	o.text("committed_at", v.Head.CommittedAt)
	o.text("hash", v.Head.Hash.String())
	o.uint("epoch", v.Head.Epoch)
	if v.Expiry != "" {
		o.text("expiry", v.Expiry)
	}
	o.uint("min_version", v.MinVersion)
	o.uint("checkpoint_size", 0)
	o.text("incarnation", v.Incarnation)
	return o.line()
}

// ref is what a batch that builds on this HEAD expects.
func (v *HeadView) ref() HeadRef { return HeadRef{Version: v.Head.Version, Hash: v.Head.Hash} }

// base is what a payload for the next version builds on.
func (v *HeadView) base() record.Base {
	return record.Base{Origin: v.Origin, Version: v.Head.Version, PayloadB3: v.Head.PayloadB3, Items: v.Items, Signers: v.Signers}
}

// etag is a strong validator of body.
func etag(body []byte) string { return `"` + b3.Sum(body).String() + `"` }

// objectWriter writes one flat JSON object in the order of its calls; the zero value is ready.
type objectWriter struct{ b []byte }

func (o *objectWriter) name(n string) {
	sep := byte(',')
	if len(o.b) == 0 {
		sep = '{'
	}
	o.b = append(o.b, sep, '"')
	o.b = append(append(o.b, n...), '"', ':')
}

func (o *objectWriter) uint(name string, v uint64) {
	o.name(name)
	o.b = strconv.AppendUint(o.b, v, 10)
}

func (o *objectWriter) text(name, v string) {
	o.name(name)
	o.b = appendText(o.b, v)
}

// line ends the object, and with a newline the body that it is.
func (o *objectWriter) line() []byte { return append(o.b, '}', '\n') }

// appendText quotes v. All strings written here come from canonical bytes or our own formats, so they are valid UTF-8.
func appendText(b []byte, v string) []byte {
	out, err := jsontext.AppendQuote(b, v)
	if err != nil {
		panic("registry: text is not UTF-8: " + err.Error())
	}
	return out
}
