package registry_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/unit"
	"ronbox/engines/registry"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	if err := registry.DefaultConfig().Validate(); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	c := registry.DefaultConfig()
	c.Origin = "https://example"
	c.Bus.ChannelBound = 1
	c.Queues.Proposals = c.Limits.Inflight
	c.Proposals.TTL = unit.Duration(time.Second)
	c.Proposals.MaxStack = 9
	c.Verify.Slice = c.Verify.Period
	c.SSE.Ping = unit.Duration(16 * time.Second)
	c.Bootstrap.TrustRootsHash = "b3:XYZ"
	c.Retention = registry.RetentionConfig{Policy: "by-size", MaxAge: unit.Duration(time.Minute), MaxCount: 99}
	err := c.Validate()
	for _, key := range []string{"origin", "bus.channel_bound", "queues.proposals", "proposals.ttl",
		"proposals.max_stack", "verify.slice", "sse.ping", "bootstrap.trust_roots_hash",
		"retention.policy", "retention.max_age", "retention.max_count"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not named in: %v", key, err)
		}
	}
}

// Packed bytes unpack to the same bytes, and damage is found.
func TestCodec(t *testing.T) {
	t.Parallel()
	c := tables.NewCodec()
	rapid.Check(t, func(t *rapid.T) {
		raw := bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "raw"), rapid.IntRange(1, 60).Draw(t, "times"))
		packed := c.Pack(raw)
		back, err := c.Unpack(packed)
		if err != nil || !bytes.Equal(back, raw) || len(packed) > len(raw)+1 {
			t.Fatalf("%d bytes, packed %d: %v", len(raw), len(packed), err)
		}
		bit := rapid.IntRange(0, 8*len(packed)-1).Draw(t, "bit")
		packed[bit/8] ^= 1 << (bit % 8)
		if back, err := c.Unpack(packed); err == nil && bytes.Equal(back, raw) {
			t.Fatalf("bit %d of %d flipped unseen", bit, 8*len(packed))
		}
	})
	for _, bad := range [][]byte{nil, {9}, {tables.CodecZstd}, {tables.CodecZstd, 1, 2}} {
		if _, err := c.Unpack(bad); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

// Damaged rows do not decode.
func TestRowsRefuseDamage(t *testing.T) {
	t.Parallel()
	for _, decode := range []func([]byte) error{
		func(b []byte) error { _, err := tables.IDKey().Decode(b); return err },
		func(b []byte) error { _, err := tables.ExpiryKeys().Decode(b); return err },
		func(b []byte) error { _, err := tables.ApprovalKeys().Decode(b); return err },
		func(b []byte) error { _, err := tables.PropValue().Decode(b); return err },
		func(b []byte) error { _, err := tables.EpochValue().Decode(b); return err },
		func(b []byte) error { _, err := tables.U64Value().Decode(b); return err },
	} {
		for _, b := range [][]byte{nil, {1}, {0xff, 0xff, 1}} {
			if decode(b) == nil {
				t.Errorf("%x decodes", b)
			}
		}
	}
	want := tables.Expiry{MS: 7, ID: testID(3)}
	if got, err := tables.ExpiryKeys().Decode(tables.ExpiryKeys().Append(nil, want)); err != nil || got != want {
		t.Errorf("expiry key = %+v, %v", got, err)
	}
}
