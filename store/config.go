package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/unit"
)

// Config is the [store] section. Keys tagged r may be changed by SetConfig; the others are read by Open.
type Config struct {
	MaxBytes      unit.Size     `toml:"max_bytes" reload:"x"`       // the file never grows beyond it; also the size of the memory map
	MinFree       unit.Size     `toml:"min_free" reload:"r"`        // work is refused while the disk has less; at most an eighth of file and free disk
	GroupMax      int           `toml:"group_max" reload:"r"`       // commands in one transaction
	GroupBytes    unit.Size     `toml:"group_bytes" reload:"r"`     // a group is closed once its commands reach this size
	CheckOnCrash  bool          `toml:"check_on_crash" reload:"r"`  // walk all pages at boot after an unclean stop
	CheckMaxBytes unit.Size     `toml:"check_max_bytes" reload:"r"` // CheckOnCrash leaves larger files alone
	LockTimeout   unit.Duration `toml:"lock_timeout" reload:"x"`    // how long Open waits for another process to let go of the file
	AllowNetwork  bool          `toml:"allow_network" reload:"x"`   // open a file on a network file system nevertheless
	SnapshotDir   string        `toml:"snapshot_dir" reload:"r"`    // relative to the file; "": the owner's choice, beside the file before a migration
	SnapshotEvery unit.Duration `toml:"snapshot_every" reload:"r"`  // the owner's schedule; 0: none
}

// AmnesiaConfig is the [amnesia] section: a node whose file is memory that ends with the process.
type AmnesiaConfig struct {
	Enabled         bool      `toml:"enabled" reload:"x"`
	PurgeIntervalMS int       `toml:"purge_interval_ms" reload:"r"` // pause between two purges of the caches
	MaxBytes        unit.Size `toml:"max_bytes" reload:"x"`         // in the place of store.max_bytes
	AllowSwap       bool      `toml:"allow_swap" reload:"x"`        // start although the memory may be swapped out
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
const PageSize = 4096

const (
	allocSize  = 16 << 20 // growth step of the file, bytes; also the slack it wants below MaxBytes
	memoryStep = 1 << 20  // likewise in memory
	auditRows  = 100_000  // length of the audit ring
	commandSz  = 1 << 10  // what a command without a Size method counts for, bytes
	minBytes   = 4 * allocSize
	minMemory  = 16 * memoryStep
	maxBytes   = 1 << (30 + (strconv.IntSize-32)/2) // what a process can map: 64 TiB, or 1 GiB where the address space is small
)

// DefaultConfig holds every default.
func DefaultConfig() Config {
	return Config{
		MaxBytes:      8 << (30 - 3*(64-strconv.IntSize)/32), // 1 GiB where the address space is small
		MinFree:       256 << 20,
		GroupMax:      4096,
		GroupBytes:    4 << 20,
		CheckOnCrash:  true,
		CheckMaxBytes: 1 << 30,
		LockTimeout:   unit.Duration(2 * time.Second),
	}
}

// Validate joins all faults.
func (c Config) Validate() error {
	var every, dir error
	if e := c.SnapshotEvery.D(); e != 0 && (e < time.Minute || e > 30*24*time.Hour) {
		every = fmt.Errorf("store.snapshot_every = %q: must be 0s or 1m..30d", c.SnapshotEvery)
	}
	if len(c.SnapshotDir) > 4096 || strings.ContainsRune(c.SnapshotDir, 0) {
		dir = fmt.Errorf("store.snapshot_dir = %.64q: must be the path of a folder", c.SnapshotDir)
	}
	return errors.Join(
		unit.Within("store.max_bytes", c.MaxBytes, minBytes, maxBytes),
		unit.Within("store.min_free", c.MinFree, 0, 1<<40),
		unit.Within("store.group_bytes", c.GroupBytes, 1<<10, 64<<20),
		unit.Within("store.group_max", c.GroupMax, 1, 4096),
		unit.Between("store.lock_timeout", c.LockTimeout, 0, time.Minute),
		every, dir,
	)
}

// DefaultAmnesiaConfig holds every default.
func DefaultAmnesiaConfig() AmnesiaConfig {
	return AmnesiaConfig{PurgeIntervalMS: 30_000, MaxBytes: 256 << 20}
}

// Validate joins all faults.
func (c AmnesiaConfig) Validate() error {
	return errors.Join(
		unit.Within("amnesia.purge_interval_ms", c.PurgeIntervalMS, 100, 3_600_000),
		unit.Within("amnesia.max_bytes", c.MaxBytes, minMemory, maxBytes),
	)
}

// DefaultAuditConfig holds every default.
func DefaultAuditConfig() AuditConfig { return AuditConfig{Enabled: true, Retain: auditRows} }

// Validate refuses what is out of bounds.
func (c AuditConfig) Validate() error { return unit.Within("audit.retain", c.Retain, 1, 10_000_000) }
