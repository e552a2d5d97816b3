package edge

import (
	"errors"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/edge/pmtiles"
)

// PacksConfig bounds what one pack can take of the node.
type PacksConfig struct {
	StatementTimeout unit.Duration `toml:"statement_timeout"` // of opening an MBTiles pack, and of reading a tile of it
	VerifyBase       unit.Duration `toml:"verify_base"`       // that the check of any pack may take
	VerifyRate       unit.Size     `toml:"verify_rate"`       // a second: a pack of n bytes may take n/verify_rate more
	ScrubRate        unit.Size     `toml:"scrub_rate"`        // a second, that the check of published packs reads at most
}

// defaultPacksConfig returns the defaults. Opening a sound pack takes milliseconds, and seconds on
// a disk that sleeps. A check reads 50 MiB a second where disk and cores are slow: the budget is
// ten times what it needs. A scrub leaves most of a disk to requests.
func defaultPacksConfig() PacksConfig {
	return PacksConfig{
		StatementTimeout: unit.Duration(2 * time.Second),
		VerifyBase:       unit.Duration(10 * time.Second),
		VerifyRate:       4 << 20,
		ScrubRate:        64 << 20,
	}
}

func (c PacksConfig) validate() error {
	return errors.Join(
		unit.Between("packs.statement_timeout", c.StatementTimeout, 10*time.Millisecond, time.Minute),
		unit.Between("packs.verify_base", c.VerifyBase, 10*time.Millisecond, time.Hour),
		unit.Within("packs.verify_rate", c.VerifyRate, 64<<10, 10<<30),
		unit.Within("packs.scrub_rate", c.ScrubRate, 64<<10, 10<<30),
	)
}

// budget returns how long the check of a pack of size bytes may take.
func (c PacksConfig) budget(size int64) time.Duration {
	return c.VerifyBase.D() + time.Duration(float64(size)/float64(c.VerifyRate)*float64(time.Second))
}

// packEnv is what the packs of a set share.
type packEnv struct {
	cfg    PacksConfig
	leaves pmtiles.Leaves // decoded directories; nil: none are kept
	slots  pmtiles.Slots
}
