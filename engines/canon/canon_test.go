package canon

import (
	"errors"
	"slices"
	"testing"

	"ronbox/engines"
)

const text = `{"a":{"b":"1","c":"x\\y\"z"},"list":["p","q"],"n":"340282366920938463463374607431768211455"}`

// taken reads the members of text and writes them again.
func taken(b []byte) (out []byte, err error) {
	f := Read(b)
	doc := Object{"a": Object{"b": f.Number("a.b"), "c": f.Text("a.c")}, "list": f.List("list"), "n": f.Amount("n")}
	out = Append(nil, doc)
	return out, f.Spelled(b, func() []byte { return out })
}

// An accepted document is written back unchanged. Every fault names its member.
func TestSpelling(t *testing.T) {
	if out, err := taken([]byte(text)); err != nil || string(out) != text {
		t.Fatalf("%s, %v", out, err)
	}
	for _, tt := range []struct{ doc, field string }{
		{`[]`, "document"}, {`{"a":{"b":"1","c":"x"},"list":[],"n":"0"} `, "document"}, {`{"list":[],"a":{"b":"1","c":"x"},"n":"0"}`, "document"},
		{`{"a":{"b":"1","b":"1","c":"x"},"list":[],"n":"0"}`, "a.b"}, {`{"a":{"b":"01","c":"x"},"list":[],"n":"0"}`, "a.b"},
		{`{"a":{"b":1,"c":"x"},"list":[],"n":"0"}`, "a.b"}, {`{"a":{"b":"1"},"list":[],"n":"0"}`, "a.c"}, {`{"a":{"b":"1","c":"x"},"list":[1],"n":"0"}`, "list"},
		{`{"a":{"b":"1","c":"x"},"list":[],"n":"-1"}`, "n"}, {`{"a":{"b":"1","c":"x","d":"y"},"list":[],"n":"0"}`, "a.d"},
		{`{"a":{"b":"1","c":"x"},"a.b":"2","list":[],"n":"0"}`, "a.b"}, {`{"a":{"c":"x"},"a.b":"2","list":[],"n":"0"}`, "a.b"},
	} {
		_, err := taken([]byte(tt.doc))
		if f, ok := errors.AsType[*FieldError](err); !ok || f.Field != tt.field {
			t.Errorf("%s: %v, want a fault of %s", tt.doc, err, tt.field)
		}
	}
}

// All faults are kept in the order of discovery. A document that is not JSON has one fault.
func TestFaults(t *testing.T) {
	for doc, want := range map[string][]string{
		`{"n":"01","x":"1","y":{"z":"2"}}`: {"a", "n", "x", "y.z"}, `{"n":"1"`: {"document"}, `{"a":"1","n":"1"}`: {},
	} {
		f := Read([]byte(doc))
		f.Text("a")
		f.Number("n")
		got := []string{}
		for _, err := range f.Faults() {
			fault, _ := errors.AsType[*FieldError](err)
			got = append(got, fault.Field)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: faults of %v, want %v", doc, got, want)
		}
		if err := f.End(); (err != nil) != (len(want) > 0) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

// A value has one spelling for every Go type that holds it.
func TestAppend(t *testing.T) {
	doc := Object{"z": uint64(7), "m": Object{}, "a": engines.AmountOf(1, 0), "l": []string{}}
	if got, want := string(Append(nil, doc)), `{"a":"18446744073709551616","l":[],"m":{},"z":"7"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
