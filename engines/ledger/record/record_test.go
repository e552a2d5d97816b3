package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines"
)

// Decode returns a record equal to the one that Append wrote, even when it decodes into a used
// record.
func TestRecordRoundTrip(t *testing.T) {
	var used Record
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord().Draw(t, "record")
		raw := r.Append([]byte("before"))[6:]
		back, err := Decode(raw)
		if err != nil || len(raw) > MaxRecord {
			t.Fatalf("%d bytes: %v", len(raw), err)
		}
		if !same(r, back) {
			t.Fatalf("wrote %+v, read %+v", r, back)
		}
		if err := used.Decode(raw); err != nil || !same(r, used) {
			t.Fatalf("wrote %+v, read into another %+v, %v", r, used, err)
		}
		if id := r.TxID(); id.Seq() != r.Seq {
			t.Fatalf("%s is of seq %d, not %d", id, id.Seq(), r.Seq)
		}
	})
}

// same compares two records and treats nil and empty slices as equal.
func same(a, b Record) bool {
	if len(a.Results) == 0 && len(b.Results) == 0 {
		a.Results, b.Results = nil, nil
	}
	if len(a.Images) == 0 && len(b.Images) == 0 {
		a.Images, b.Images = nil, nil
	}
	return reflect.DeepEqual(a, b)
}

// Decode detects every flipped bit, truncation and trailing byte.
func TestRecordDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord().Draw(t, "record")
		raw := r.Append(nil)
		bit := rapid.IntRange(0, 8*len(raw)-1).Draw(t, "bit")
		raw[bit/8] ^= 1 << (bit % 8)
		refused(t, raw)
		raw[bit/8] ^= 1 << (bit % 8)
		refused(t, raw[:rapid.IntRange(0, len(raw)-1).Draw(t, "cut")])
		refused(t, append(raw, rapid.Byte().Draw(t, "trail")))
	})
}

type failer interface{ Fatalf(string, ...any) }

func refused(t failer, raw []byte) {
	var bad *FormatError
	if r, err := Decode(raw); !errors.As(err, &bad) {
		t.Fatalf("%x was read as %+v, %v", raw, r, err)
	}
}

// reseal recomputes the checksum of b.
func reseal(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[len(b)-crcSize:], crc32.Checksum(b[:len(b)-crcSize], castagnoli))
	return b
}

// Decode refuses a non-canonical or invalid value even if the checksum is valid.
func TestRecordForms(t *testing.T) {
	base := Record{
		Op:     OpTransfer,
		Seq:    5,
		Batch:  2,
		At:     7,
		Asset:  1,
		From:   1,
		To:     2,
		Images: []Image{{Account: 1, Asset: 1, State: State{LastSeq: 5}, Prev: 4}},
	}
	raw := base.Append(nil)
	if _, err := Decode(raw); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		at   int
		to   byte
		want error
	}{
		{"version of flags", 0, 2, errVersion}, {"version 3", 0, 3, errVersion}, {"version 0", 0, 0, errVersion},
		{"op 0", offOp, 0, errOp}, {"op 14", offOp, 14, errClose}, {"op 15", offOp, 15, errOp},
		{"flags", offFlags, 4, errFlags}, {"flags above", offFlags + 1, 1, errFlags},
		{"parts above", offParts, 0x80, errParts}, {"part without bytes", offParts, byte(partHold), errLength},
		{"seq", offSeq, 0, errNumber}, {"batch", offBatch, 0, errNumber}, {"at", offAt + 7, 0x80, errNumber},
		{"images", offImages, 2, errLength}, {"images above", offImages, 5, errImages}, {"no image", offImages, 0, errLength},
		{"idem", offIdem, 1, errLength}, {"memo", offMemo, 255, errLength},
		{"image of nobody", headSize, 0, errImages}, {"image after itself", len(raw) - crcSize - 8, 5, errImages},
		{"name missing", offOp, byte(OpOpen), engines.ErrAccount}, {"results missing", offOp, byte(OpBatch), errResults},
	} {
		b := append([]byte(nil), raw...)
		b[tt.at] = tt.to
		if _, err := Decode(reseal(b)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	empty := append(append([]byte(nil), raw[:headSize]...), make([]byte, 8+len(raw)-headSize)...)
	copy(empty[headSize+8:], raw[headSize:])
	empty[offParts] = byte(partHold)
	if _, err := Decode(reseal(empty)); !errors.Is(err, errParts) {
		t.Errorf("a part that is present but empty: %v", err)
	}
}

// Append panics if Decode would refuse the record.
func TestRecordNotWritten(t *testing.T) {
	for name, change := range map[string]func(*Record){
		"op":              func(r *Record) { r.Op = 0 },
		"flags":           func(r *Record) { r.Flags = 4 },
		"set":             func(r *Record) { r.Set = 16 },
		"named":           func(r *Record) { r.Named = true },
		"named nothing":   func(r *Record) { r.Op, r.Named = OpFlags, true },
		"seq":             func(r *Record) { r.Seq = 0 },
		"batch":           func(r *Record) { r.Batch = 0 },
		"at":              func(r *Record) { r.At = -1 },
		"dedupe":          func(r *Record) { r.Dedupe.Key[0] = 1 },
		"dedupe kind":     func(r *Record) { r.Dedupe.Kind = 3 },
		"idem":            func(r *Record) { r.Idem = "a b" },
		"idem length":     func(r *Record) { r.Idem = strings.Repeat("a", MaxIdem+1) },
		"memo":            func(r *Record) { r.Memo = "\xff" },
		"memo length":     func(r *Record) { r.Memo = strings.Repeat("a", MaxMemo+1) },
		"name":            func(r *Record) { r.Name = "alice" },
		"open":            func(r *Record) { r.Op, r.Name = OpOpen, "al ice" },
		"asset":           func(r *Record) { r.Op, r.Name = OpAsset, "RON" },
		"results":         func(r *Record) { r.Results = []byte{0} },
		"a scale of none": func(r *Record) { r.Op, r.Amount, r.Asset = OpScale, engines.Amount{}, 0 },
		"decimals":        func(r *Record) { r.Op, r.Amount = OpScale, engines.AmountOf(0, 19) },
		"no results":      func(r *Record) { r.Op, r.Parts = OpBatch, 1 },
		"result":          func(r *Record) { r.Op, r.Parts, r.Results = OpBatch, 1, []byte{200} },
		"part":            func(r *Record) { r.Op, r.Parts, r.Part, r.Results = OpBatch, 1, 1, []byte{0} },
		"short part":      func(r *Record) { r.Op, r.Parts, r.Results = OpBatch, 2, []byte{0} },
		"images":          func(r *Record) { r.Images = make([]Image, MaxImages+1) },
		"image's asset":   func(r *Record) { r.Images[0].Asset++ },
		"image's seq":     func(r *Record) { r.Images[0].State.LastSeq++ },
		"image's past":    func(r *Record) { r.Images[0].Prev = r.Seq },
		"image's ref":     func(r *Record) { r.Images[0].Account = 0 },
		"image's twin":    func(r *Record) { r.Images = append(r.Images, r.Images[0]) },
		"image of none":   func(r *Record) { r.Asset, r.Images[0].Asset = 0, 0 },
		"all at once":     func(r *Record) { *r = fullest(); r.Op, r.Name = OpOpen, strings.Repeat("a", 256) },
		"expires before":  func(r *Record) { r.Expires = -1 },
	} {
		r := Record{
			Op:     OpTransfer,
			Seq:    5,
			Batch:  2,
			Asset:  1,
			Images: []Image{{Account: 1, Asset: 1, State: State{LastSeq: 5}}},
		}
		change(&r)
		if !panics(func() { r.Append(nil) }) {
			t.Errorf("%s: was written", name)
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// fullest returns a record with every part that is possible without a name and results, each of
// maximum length.
func fullest() Record {
	r := Record{
		Op:        OpHold,
		Flags:     allRecordFlags,
		Set:       allFlags,
		Clear:     allFlags,
		Rand:      1,
		Asset:     9,
		Seq:       1 << 60,
		Batch:     1 << 50,
		At:        1,
		From:      1,
		To:        2,
		Nonce:     3,
		Amount:    engines.AmountOf(1, 1),
		Principal: [8]byte{1},
		CapID:     [8]byte{2},
		Dedupe:    Dedupe{DedupeKey, [16]byte{3}, [32]byte{4}},
		Guard:     Guard{[16]byte{5}, [16]byte{6}},
		Hold:      7,
		Expires:   8,
		Idem:      strings.Repeat("i", MaxIdem),
		Memo:      strings.Repeat("é", MaxMemo/2),
	}
	for i := range MaxImages {
		r.Images = append(
			r.Images,
			Image{Account: uint64(i + 1), Asset: 9, State: State{LastSeq: r.Seq, Day: 1}, Prev: 1},
		)
	}
	return r
}

// The longest records fit into the limit, with the spare room described at MaxMemo.
func TestRecordLongest(t *testing.T) {
	r := fullest()
	if n := len(r.Append(nil)); n != worstPlain || n > MaxRecord || MaxRecord-(n-MaxMemo) != 139 {
		t.Errorf("the longest record has %d bytes, %d were expected", n, worstPlain)
	}
	b := Record{
		Op:        OpBatch,
		Seq:       1,
		Batch:     1,
		Parts:     8,
		Part:      7,
		Results:   make([]byte, MaxResults),
		Idem:      r.Idem,
		Principal: r.Principal,
		Dedupe:    r.Dedupe,
	}
	if n := len(b.Append(nil)); n != worstBatch || n > MaxRecord {
		t.Errorf("the longest record of a batch has %d bytes, %d were expected", n, worstBatch)
	}
	if 4096%MaxResults != 0 || 4096/MaxResults != 8 {
		t.Error("4096 results do not make eight records")
	}
}

func TestState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState().Draw(t, "state")
		raw := s.Append(nil)
		if back, err := DecodeState(raw); err != nil || back != s || len(raw) != StateSize {
			t.Fatalf("wrote %+v, read %+v, %v", s, back, err)
		}
		balance, ok := s.Balance()
		if ok == s.CreditsPosted.Less(s.DebitsPosted) {
			t.Fatalf("balance %s, %v of %+v", balance, ok, s)
		}
		if available, fine := s.Available(); fine != (ok && !balance.Less(s.DebitsHeld)) ||
			fine && balance.Less(available) {
			t.Fatalf("available %s, %v of %+v", available, fine, s)
		}
	})
	var s State
	for _, bad := range [][]byte{nil, make([]byte, StateSize), s.Append(nil)[:StateSize-1], append(s.Append(nil), 0)} {
		if _, err := DecodeState(bad); !errors.Is(err, ErrState) {
			t.Errorf("%x was read: %v", bad, err)
		}
	}
}
