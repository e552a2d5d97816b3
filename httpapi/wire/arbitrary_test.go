package wire_test

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
)

// arbitrary fills v, a struct, with what its tags and schemas allow.
func arbitrary(t *rapid.T, v reflect.Value, patterns func(typ, member string) string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options != "" && rapid.Bool().Draw(t, name+" left out") {
			continue
		}
		a := text{
			name:    name,
			min:     number(f.Tag.Get("min"), 0),
			max:     number(f.Tag.Get("max"), math.MaxUint64),
			enum:    f.Tag.Get("enum"),
			pattern: patterns(v.Type().Name(), name),
			is:      f.Tag.Get("is"),
		}
		draw(t, v.Field(i), a, patterns)
	}
}

// text describes the strings and numbers of one member.
type text struct {
	name, enum, pattern string
	is                  string // the type of the bytes; "": any
	min, max            uint64
}

const aReceipt = `{"txid":"tx_01KDYAK3SE000000000000BFQF","op":"burn","from":"alice","asset":"ron","amount_minor":"1","nonce":5,"ts":"2026-01-02T03:04:05.678Z",` +
	`"receipt_hash":"b3:e871f36db6541db7d8ed36476c11aa51658755b6fada9b226d3b5bede402c698","ledger":{"seq":5,"batch":3,` +
	`"root":"b3:92a2b787a06d7272df43eaf87acc3b9c1d315d79d599d61c285983483e431998"}}`

// number reads the bound of a tag.
func number(tag string, none uint64) uint64 {
	if n, err := strconv.ParseUint(tag, 10, 64); err == nil {
		return n
	}
	return none
}

func (a text) draw(t *rapid.T) string {
	switch {
	case a.enum != "":
		return rapid.SampledFrom(strings.Split(a.enum, "|")).Draw(t, a.name)
	case a.pattern != "":
		return rapid.StringMatching(a.pattern).Draw(t, a.name)
	}
	return rapid.StringN(0, 12, -1).Draw(t, a.name)
}

func draw(t *rapid.T, v reflect.Value, a text, patterns func(typ, member string) string) {
	switch v.Interface().(type) {
	case time.Time:
		at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, a.name), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).
			UTC()
		v.Set(reflect.ValueOf(at))
		return
	case wire.Instant:
		v.Set(reflect.ValueOf(wire.Instant{Time: time.UnixMilli(rapid.Int64Range(0, 1<<43).Draw(t, a.name)).UTC()}))
		return
	case record.Item:
		raw := fmt.Sprintf(`{"id":"a%d","kind":"node","meta":{}}`, rapid.IntRange(0, 9).Draw(t, a.name))
		v.Set(reflect.ValueOf(record.Item{ID: raw[7:9], Bytes: []byte(raw)}))
		return
	case b3.Digest, tlog.Hash:
		reflect.Copy(v, reflect.ValueOf(rapid.SliceOfN(rapid.Byte(), b3.Size, b3.Size).Draw(t, a.name)))
		return
	case []byte:
		v.SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, a.name))
		return
	case jsontext.Value:
		if a.is == "Receipt" {
			v.SetBytes([]byte(aReceipt))
			return
		}
		v.SetBytes(
			[]byte(rapid.SampledFrom([]string{`{}`, `{"a":[1,null]}`, `"x"`, `[]`, `-1.5e3`, `true`}).Draw(t, a.name)),
		)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		arbitrary(t, v, patterns)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		draw(t, v.Elem(), a, patterns)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(0, 3).Draw(t, a.name), 3))
		for i := range v.Len() {
			draw(t, v.Index(i), a, patterns)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(0, 3).Draw(t, a.name) {
			held := reflect.New(v.Type().Elem()).Elem()
			draw(t, held, a, patterns)
			v.SetMapIndex(reflect.ValueOf(rapid.String().Draw(t, "key")), held)
		}
	case reflect.Interface:
		v.Set(
			reflect.ValueOf(
				rapid.SampledFrom([]any{"x", true, 1.5, []any{"y"}, map[string]any{"z": false}}).Draw(t, a.name),
			),
		)
	default:
		scalar(t, v, a)
	}
}

func scalar(t *rapid.T, v reflect.Value, a text) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(a.draw(t))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, a.name))
	case reflect.Int, reflect.Int64:
		if a.max < 1<<53 {
			v.SetInt(rapid.Int64Range(int64(a.min), int64(a.max)).Draw(t, a.name))
			return
		}
		v.SetInt(rapid.Int64().Draw(t, a.name))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64Range(a.min, a.max).Draw(t, a.name))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(-1e9, 1e9).Draw(t, a.name))
	default:
		panic(fmt.Sprintf("no values of %s: bodies hold other types", v.Type()))
	}
}
