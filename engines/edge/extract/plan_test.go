package extract

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"ronbox/engines/edge/pmtiles"
)

const soundPlan = `{"format":"ronbox.extract/1","pack":"p","url":"https://a.example/b?c=d","bbox":[1,2,3,4],
	"asked":[0,255],"min_zoom":0,"max_zoom":3,"tiles":7,"source_bytes":100000,"etag":"\"1\"","head_bytes":300,
	"bytes":5000,"ranges":"b3:` + zeros + `","added":"2026-11-29T20:00:00Z","state":"reading","requests":3,
	"synced":300,"boot":"x"}`

const zeros = "0000000000000000000000000000000000000000000000000000000000000001"

// A plan with a fault is refused.
func TestParsePlan(t *testing.T) {
	if p, err := parsePlan([]byte(soundPlan)); err != nil || p.Pack != "p" || p.Bytes != 5000 {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, tt := range []struct{ from, to string }{
		{"extract/1", "extract/2"}, {"https:", "http:"}, {"a.example/b", "A.example/b"}, {`"reading"`, `"waiting"`},
		{`"synced":300`, `"synced":5001`}, {`"synced":300`, `"synced":-1`}, {`"bytes":5000`, `"bytes":300`},
		{`"head_bytes":300`, `"head_bytes":0`}, {`"boot"`, `"boots"`}, {"b3:0", "b4:0"}, {"}", ""},
	} {
		if _, err := parsePlan([]byte(strings.Replace(soundPlan, tt.from, tt.to, 1))); err == nil {
			t.Errorf("%s for %s is accepted", tt.to, tt.from)
		}
	}
}

// A plan that parses is written as it is read.
func FuzzPlan(f *testing.F) {
	f.Add([]byte(soundPlan))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePlan(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := parsePlan(again); err != nil || !reflect.DeepEqual(q, p) {
			t.Errorf("%+v, %v, want %+v", q, err, p)
		}
		_ = p.info()
	})
}

// sections draws ranges of a source of 100 MB.
var sections = rapid.SliceOf(rapid.Custom(func(t *rapid.T) pmtiles.Section {
	s := pmtiles.Section{Offset: rapid.Uint64Range(0, 90_000_000).Draw(t, "offset")}
	s.Length = rapid.Uint64Range(1, 10_000_000).Draw(t, "length")
	if rapid.Bool().Draw(t, "small") {
		s.Length = s.Length%50_000 + 1
	}
	if rapid.Bool().Draw(t, "near") {
		s.Offset %= 200_000
	}
	return s
}))

func TestRangesLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := sections.Draw(t, "ranges")
		if got := decodeRanges(encodeRanges(all)); !slices.Equal(got, all) {
			t.Fatalf("%v, want %v", got, all)
		}
	})
}

// The requests for ranges have all their bytes in order, are short, and read few bytes between
// ranges.
func TestBatchesLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := sections.Draw(t, "ranges")
		chunk := rapid.Uint64Range(leastAsked, mostAsked).Draw(t, "chunk")
		want, wanted, asked := slices.Clone(all), uint64(0), uint64(0)
		for _, s := range all {
			wanted += s.Length
		}
		todo := batches{rest: slices.Clone(all), chunk: chunk}
		for b := todo.next(); len(b.pieces) > 0; b = todo.next() {
			if b.at.Length > chunk || b.at.Length == 0 {
				t.Fatalf("a request of %d bytes, at most %d", b.at.Length, chunk)
			}
			asked += b.at.Length
			for _, p := range b.pieces {
				if p.Offset < b.at.Offset || p.Offset+p.Length > b.at.Offset+b.at.Length || p.Length == 0 {
					t.Fatalf("%v is not in %v", p, b.at)
				}
				if len(want) == 0 || p.Offset != want[0].Offset || p.Length > want[0].Length {
					t.Fatalf("%v, want %v", p, want)
				}
				want[0].Offset, want[0].Length = p.Offset+p.Length, want[0].Length-p.Length
				if want[0].Length == 0 {
					want = want[1:]
				}
			}
		}
		if len(want) > 0 || asked > wanted+wanted/shareGaps+spareGaps {
			t.Fatalf("%d ranges left, %d bytes for %d", len(want), asked, wanted)
		}
	})
}

// Ranges without their first bytes are those that follow.
func TestSkipLaw(t *testing.T) {
	bytesOf := func(all []pmtiles.Section) (out []uint64) {
		for _, s := range all {
			for i := range s.Length {
				out = append(out, s.Offset+i)
			}
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		all := sections.Draw(t, "ranges")
		for i := range all {
			all[i].Length = all[i].Length%9 + 1
		}
		whole := bytesOf(all)
		n := rapid.IntRange(0, len(whole)).Draw(t, "bytes")
		if got := bytesOf(skip(all, int64(n))); !slices.Equal(got, whole[n:]) {
			t.Fatalf("%v, want %v", got, whole[n:])
		}
	})
}

func TestChunkOf(t *testing.T) {
	for size, want := range map[int64]int64{0: firstAsked, 64 << 20: 512 << 10, 1 << 30: mostAsked} {
		if got := chunkOf(size); got != want {
			t.Errorf("%d: %d, want %d", size, got, want)
		}
	}
	for _, tt := range []struct {
		chunk, got int64
		took       time.Duration
		want       int64
	}{
		{mostAsked, 0, time.Hour, firstAsked},
		{leastAsked, 0, time.Hour, leastAsked},
		{mostAsked, 1 << 20, 0, mostAsked},
		{mostAsked, 1 << 20, 100 * time.Millisecond, mostAsked},
		{firstAsked, 1 << 20, 100 * time.Millisecond, firstAsked},
		{mostAsked, 1 << 20, 10 * time.Second, 1 << 20 / 10},
		{mostAsked, 1 << 20, time.Hour, leastAsked},
	} {
		if got := stepOf(tt.chunk, tt.got, tt.took); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}
