// Package archive keeps the changes of a node off its machine: it captures the entries of the
// committer, and sends them as log objects, with a base now and then, into a target. Package
// history restores the file of any moment from there.
//
// A base is a verified snapshot in parts. A log object holds the entries of consecutive groups. A
// line is an unbroken chain of log objects with the bases along it. The tap takes the entries from
// the committer. The ledger has files of closed periods copied, a part at a time.
//
// # Invariants
//
//  1. The archive delays a commit by one write to a local file, and with fsync = "always" by a
//     sync. It refuses and fails nothing: a tap that cannot write ends its line.
//  2. A line has every group of commands between its first and its last one, and no group that was
//     rolled back. It goes on after a boot only if its end is the position of the file, of the same
//     incarnation, schema and buckets, with the same key. Otherwise, and if an entry does not
//     follow the last one, a new line begins, with a base. Of a line with a gap the last local
//     entry is dropped, because only one that another follows is known to have been committed.
//  3. A log object is sent once the record has it, and the record has it once it is synced. After a
//     kill an object that the record lacks is made again, under the same name, and was not sent.
//  4. Nothing in the target is written over. A name that exists with the same sum was sent before;
//     with another one there is another writer, and this node begins a line of its own. It also
//     does if it may not read the name. A target that lacks what was sent last gets nothing.
//  5. Local files stay within max_local and leave the space that the store needs. Then capture
//     stops; a new line begins when everything was sent and there is room.
//  6. A part of the file of a closed period has the sum of the file in its name. CopyPart succeeds
//     only if the target has that part, as far as the credentials permit to read it.
//  7. The names of the parts of a base are used once: a base whose snapshot was lost is not taken
//     again at the same command.
//
// # Tasks and queues
//
//   - packer: 1 task. Each 100 ms it syncs the raw file; each every it makes an object of it.
//   - sender: 1 task. It sends the oldest log object, or a part of a base if there is none, and
//     tries until the target has it.
//   - keeper: 1 task. Each second it looks whether a line or a base is due, and each hour it
//     deletes what is not kept.
//   - archive.pack_tick, archive.send_tick, archive.keep_tick: tickers of 100 ms, 100 ms and 1 s.
//
// # Lock order
//
// The locks of the tap, the outbox, the pacer and the record are leaves. Those of the tap and of
// the record are held over writes of local files: the first by the committer, the second never.
package archive
