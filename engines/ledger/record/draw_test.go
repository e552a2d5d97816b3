package record

import (
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

func drawAmount() *rapid.Generator[engines.Amount] {
	return rapid.Custom(func(t *rapid.T) engines.Amount {
		return engines.AmountOf(drawUint(t, "hi"), drawUint(t, "lo"))
	})
}

func drawUint(t *rapid.T, label string) uint64 {
	return rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 0, 1, 255, 256, 1<<63 - 1, 1<<64 - 1})).
		Draw(t, label)
}

func drawTime(t *rapid.T, label string) int64 {
	return rapid.OneOf(rapid.Int64Min(0), rapid.Int64Range(0, 1000), rapid.Int64Range(1_700_000_000_000_000_000, 1_900_000_000_000_000_000)).
		Draw(t, label)
}

func drawState() *rapid.Generator[State] {
	return rapid.Custom(func(t *rapid.T) State {
		a := drawAmount()
		return State{
			CreditsPosted: a.Draw(t, "credits"),
			DebitsPosted:  a.Draw(t, "debits"),
			DebitsHeld:    a.Draw(t, "debits held"),
			CreditsHeld:   a.Draw(t, "credits held"),
			DayDebits:     a.Draw(t, "day debits"),
			Day:           rapid.Uint32().Draw(t, "day"),
			LastSeq:       drawUint(t, "last seq"),
		}
	})
}

// drawRecord draws records that Append accepts, with arbitrary meaning.
func drawRecord() *rapid.Generator[Record] {
	return rapid.Custom(func(t *rapid.T) Record {
		r := Record{
			Op:     Op(rapid.IntRange(int(OpOpen), int(OpScale)).Draw(t, "op")),
			Flags:  rapid.Uint16Range(0, allRecordFlags).Draw(t, "flags"),
			Set:    Flags(rapid.IntRange(0, 15).Draw(t, "set")),
			Clear:  Flags(rapid.IntRange(0, 15).Draw(t, "clear")),
			Rand:   rapid.Uint16().Draw(t, "rand"),
			Asset:  uint32(drawUint(t, "asset")),
			Seq:    max(1, drawUint(t, "seq")),
			Batch:  max(1, drawUint(t, "batch")),
			At:     drawTime(t, "at"),
			Amount: drawAmount().Draw(t, "amount"),
			From:   drawUint(t, "from"),
			To:     drawUint(t, "to"),
			Nonce:  drawUint(t, "nonce"),
			Hold:   drawUint(t, "hold"),
			Idem:   rapid.StringMatching(`([A-Za-z0-9._:-]{1,64})?`).Draw(t, "idem"),
		}
		r.Named = r.Op == OpFlags && r.Set|r.Clear != 0 && rapid.Bool().Draw(t, "named")
		drawParts(t, &r)
		return r
	})
}

func drawParts(t *rapid.T, r *Record) {
	yes := func(label string) bool { return rapid.Bool().Draw(t, label) }
	if yes("who") {
		r.Principal = [8]byte(drawBytes(t, 8, "principal"))
		r.CapID = [8]byte(drawBytes(t, 8, "cap id"))
	}
	if yes("dedupe") {
		r.Dedupe = Dedupe{
			rapid.SampledFrom([]uint8{DedupeKey, DedupeOnce}).Draw(t, "kind"),
			[16]byte(drawBytes(t, 16, "key")),
			[32]byte(drawBytes(t, 32, "fp")),
		}
	}
	switch r.Op {
	case OpOpen:
		r.Name = rapid.StringMatching(`[A-Za-z0-9:/_-]{1,256}`).Draw(t, "name")
		return
	case OpAsset:
		r.Name = rapid.StringMatching(`[a-z0-9]{1,16}`).Draw(t, "name")
		return
	case OpBatch:
		drawResults(t, r)
		return
	case OpScale:
		r.Asset, r.Amount = max(1, r.Asset), engines.AmountOf(0, rapid.Uint64Range(0, engines.MaxDecimals).Draw(t, "decimals"))
	case OpOnce:
		r.Guard = Guard{[16]byte(drawBytes(t, 16, "guard")), [16]byte(drawBytes(t, 16, "owner"))}
	case OpHold:
		r.Expires = drawTime(t, "expires")
	}
	r.Memo = rapid.StringN(0, 32, MaxMemo).Draw(t, "memo")
	if r.Asset == 0 {
		return
	}
	for i := range rapid.IntRange(0, MaxImages).Draw(t, "images") {
		m := Image{
			Account: max(4, drawUint(t, "account"))&^3 | uint64(i),
			Asset:   r.Asset,
			State:   drawState().Draw(t, "state"),
			Prev:    drawUint(t, "prev") % r.Seq,
		}
		m.State.LastSeq = r.Seq
		r.Images = append(r.Images, m)
	}
}

func drawResults(t *rapid.T, r *Record) {
	r.Parts = rapid.Uint16Range(1, 8).Draw(t, "parts")
	r.Part = rapid.Uint16Range(0, r.Parts-1).Draw(t, "part")
	n := MaxResults
	if r.Part+1 == r.Parts {
		n = rapid.IntRange(1, MaxResults).Draw(t, "results")
	}
	r.Results = make([]byte, n)
	for i := range r.Results {
		r.Results[i] = byte(rapid.IntRange(0, len(resultNames)-1).Draw(t, "result"))
	}
}

func drawBytes(t *rapid.T, n int, label string) []byte {
	return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, label)
}

func drawDigest(t *rapid.T, label string) b3.Digest { return b3.Digest(drawBytes(t, b3.Size, label)) }

func drawBatch(t *rapid.T) Batch {
	first := rapid.Uint64Range(1, 1<<63).Draw(t, "first")
	return Batch{
		No:     max(1, drawUint(t, "no")),
		First:  first,
		Count:  rapid.Uint64Range(1, 1<<62).Draw(t, "count"),
		At:     drawTime(t, "at"),
		Merkle: drawDigest(t, "merkle"),
		Prev:   drawDigest(t, "prev"),
	}
}
