package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/unit"
	"ronbox/store/page"
)

// Config is the [store] section. Keys tagged r may be changed by SetConfig; the others are read by
// Open.
type Config struct {
	// size limit of the file, and size of the memory map
	MaxBytes unit.Size `toml:"max_bytes" reload:"x"`
	// work is refused while the disk has less free space; capped at an eighth of file size plus
	// free space
	MinFree  unit.Size `toml:"min_free" reload:"r"`
	GroupMax int       `toml:"group_max" reload:"r"` // commands in one transaction
	// a group is closed when its commands reach this size
	GroupBytes    unit.Size `toml:"group_bytes" reload:"r"`
	CheckOnCrash  bool      `toml:"check_on_crash" reload:"r"`  // check all pages at boot after an unclean stop
	CheckMaxBytes unit.Size `toml:"check_max_bytes" reload:"r"` // CheckOnCrash skips larger files
	// how long Open waits for the lock of the file
	LockTimeout  unit.Duration `toml:"lock_timeout" reload:"x"`
	AllowNetwork bool          `toml:"allow_network" reload:"x"` // allow a file on a network file system
	// relative to the file; "": chosen by the caller, and beside the file before a migration
	SnapshotDir   string        `toml:"snapshot_dir" reload:"r"`
	SnapshotEvery unit.Duration `toml:"snapshot_every" reload:"r"` // used by the caller; 0: never
}

// AmnesiaConfig is the [amnesia] section, for a node that keeps its file in memory.
type AmnesiaConfig struct {
	Enabled         bool      `toml:"enabled" reload:"x"`
	PurgeIntervalMS int       `toml:"purge_interval_ms" reload:"r"` // pause between two purges of the caches
	MaxBytes        unit.Size `toml:"max_bytes" reload:"x"`         // replaces store.max_bytes
	AllowSwap       bool      `toml:"allow_swap" reload:"x"`        // start even if the memory may be swapped out
}

// AuditConfig is the [audit] section.
type AuditConfig struct {
	Enabled bool `toml:"enabled" reload:"r"` // false: no rows are written
	Retain  int  `toml:"retain" reload:"r"`  // rows kept, the newest
}

// Bounds of one command's writes. A key and a value are checked when the command fills its Writes.
const (
	MaxKey   = 512            // bytes
	MaxValue = 1<<20 + 64<<10 // bytes: a payload of 1 MiB and its frame
)

// PageSize of every file, in bytes: fixed, so that a snapshot opens on hosts with larger pages.
const PageSize = page.Size

const (
	allocSize  = 16 << 20 // growth step of the file, and the slack below MaxBytes, bytes
	memoryStep = 1 << 20  // growth step in memory, bytes
	auditRows  = 100_000  // length of the audit ring
	commandSz  = 1 << 10  // assumed size of a command without a Size method, bytes
	minBytes   = 4 * allocSize
	minMemory  = 16 * memoryStep
	// largest map: 64 TiB, or 1 GiB in a 32-bit address space
	maxBytes = 1 << (30 + (strconv.IntSize-32)/2)
)

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{
		MaxBytes:      8 << (30 - 3*(64-strconv.IntSize)/32), // 1 GiB in a 32-bit address space
		MinFree:       256 << 20,
		GroupMax:      4096,
		GroupBytes:    4 << 20,
		CheckOnCrash:  true,
		CheckMaxBytes: 1 << 30,
		LockTimeout:   unit.Duration(2 * time.Second),
	}
}

// Validate returns all faults of c, joined.
func (c Config) Validate() error {
	var every, dir error
	if e := c.SnapshotEvery.D(); e != 0 && (e < time.Minute || e > 30*24*time.Hour) {
		every = fmt.Errorf("store.snapshot_every = %q: must be 0s or 1m..30d", c.SnapshotEvery)
	}
	if len(c.SnapshotDir) > 4096 || strings.ContainsRune(c.SnapshotDir, 0) {
		dir = fmt.Errorf("store.snapshot_dir = %.64q: must be the path of a folder", c.SnapshotDir)
	}
	return errors.Join(unit.Within("store.max_bytes", c.MaxBytes, minBytes, maxBytes),
		unit.Within("store.min_free", c.MinFree, 0, 1<<40),
		unit.Within("store.group_bytes", c.GroupBytes, 1<<10, 64<<20),
		unit.Within("store.group_max", c.GroupMax, 1, 4096),
		unit.Between("store.lock_timeout", c.LockTimeout, 0, time.Minute), every, dir)
}

// DefaultAmnesiaConfig returns the default configuration.
func DefaultAmnesiaConfig() AmnesiaConfig {
	return AmnesiaConfig{PurgeIntervalMS: 30_000, MaxBytes: 256 << 20}
}

// Validate returns all faults of c, joined.
func (c AmnesiaConfig) Validate() error {
	return errors.Join(
		unit.Within("amnesia.purge_interval_ms", c.PurgeIntervalMS, 100, 3_600_000),
		unit.Within("amnesia.max_bytes", c.MaxBytes, minMemory, maxBytes),
	)
}

// DefaultAuditConfig returns the default configuration.
func DefaultAuditConfig() AuditConfig { return AuditConfig{Enabled: true, Retain: auditRows} }

// Validate returns an error if a value is out of bounds.
func (c AuditConfig) Validate() error { return unit.Within("audit.retain", c.Retain, 1, 10_000_000) }
