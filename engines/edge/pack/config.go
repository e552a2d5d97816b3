package pack

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/unit"
)

// service is the name of the edge in metrics, logs and the catalogue.
const service = "edge"

// maxTileRoom bounds the memory of all tiles that are too large for the cache, in bytes.
const maxTileRoom = 64 << 20

// Config bounds the resources that one pack may use.
type Config struct {
	StatementTimeout unit.Duration `toml:"statement_timeout"` // to open an MBTiles pack or to read one of its tiles
	VerifyBase       unit.Duration `toml:"verify_base"`       // allowed for the check of any pack
	VerifyRate       unit.Size     `toml:"verify_rate"`       // bytes that add a second to that allowance
	// Bytes a second that the scrub of published packs reads at most.
	ScrubRate unit.Size `toml:"scrub_rate"`
	// Bytes of a stored tile. A longer one is skipped.
	MaxTile unit.Size `toml:"max_tile"`
	// Bytes of the name, attribution, layers and other metadata of a pack. What exceeds them is
	// left out.
	MaxDescription unit.Size `toml:"max_description"`
	// Between two looks at the folder. A new file is opened after two equal looks. 0 means that
	// only a rescan looks.
	Watch unit.Duration `toml:"watch"`
	// Bytes of the files of the folder, with those of uploads. 0 refuses every upload.
	MaxBytes unit.Size `toml:"max_bytes"`
}

// DefaultConfig returns the defaults. Opening a sound pack takes milliseconds, or seconds on a
// sleeping disk. A check reads 50 MiB a second on slow disks and cores; the budget is ten times
// that. A scrub leaves most of a disk to requests.
func DefaultConfig() Config {
	return Config{
		StatementTimeout: unit.Duration(2 * time.Second),
		VerifyBase:       unit.Duration(10 * time.Second),
		VerifyRate:       4 << 20,
		ScrubRate:        64 << 20,
		MaxTile:          32 << 20,
		MaxDescription:   4 << 20,
		Watch:            unit.Duration(5 * time.Second),
		MaxBytes:         64 << 30,
	}
}

// Validate joins all faults of c. It names keys below edge.
func (c Config) Validate() error {
	var watch error
	if c.Watch != 0 {
		watch = unit.Between("packs.watch", c.Watch, time.Second, time.Hour)
	}
	return errors.Join(watch,
		unit.Between("packs.statement_timeout", c.StatementTimeout, 10*time.Millisecond, time.Minute),
		unit.Between("packs.verify_base", c.VerifyBase, 10*time.Millisecond, time.Hour),
		unit.Within("packs.verify_rate", c.VerifyRate, 64<<10, 10<<30),
		unit.Within("packs.scrub_rate", c.ScrubRate, 64<<10, 10<<30),
		unit.Within("packs.max_tile", c.MaxTile, 64<<10, maxTileRoom),
		unit.Within("packs.max_description", c.MaxDescription, 64<<10, 16<<20),
		unit.Within("packs.max_bytes", c.MaxBytes, 0, 1<<50))
}

// budget returns how long the check of a pack of size bytes may take.
func (c Config) budget(size int64) time.Duration {
	return c.VerifyBase.D() + time.Duration(float64(size)/float64(c.VerifyRate)*float64(time.Second))
}

// rules identifies the checks of a verification and the bounds that they apply. The result of other
// rules does not count.
func (c Config) rules() string { return fmt.Sprintf("1 %d %d", c.MaxTile, c.MaxDescription) }
