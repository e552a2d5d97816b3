// Package extract makes packs of a region and of some zoom levels of PMTiles archives at the hosts
// of edge.allow. An extract is planned first: its directories are read, and so its tiles, its bytes
// and the ranges of the source that it needs are known. Its part begins with the header and the
// directories; the tiles follow in the order in which they are read.
//
// # Invariants
//
//  1. The length of a part is its progress. After a kill an extract goes on there; after a power
//     cut at the bytes that were synced, at least every 16 MiB. After a failure of a request the
//     part has all bytes that came before the first one that is missing.
//  2. The bytes of two sources never mix: each request demands the tag of the first answer, and an
//     answer must be a 206 with that tag and the range that was asked for. A source that has
//     changed and a host without ranges or without a strong tag fail an extract. After other
//     failures it is tried again, without end, after 5 s to 5 min.
//  3. An extract begins only if there is room for all of it, as package pack describes, and if it
//     has at most edge.extract.max_tiles entries.
//  4. A request has at most 4 MiB, at most a 128th of a part of more than 32 MiB, and the bytes of
//     a second; at most 4 are under way. Of the bytes between ranges at most a 25th of the ranges
//     is read. So five kills cost at most a fifth of the bytes.
//  5. A part becomes a pack as an upload does: it is checked, and then has its name at once. The
//     pack that it replaces serves until then.
//  6. The folder .extracts in the folder of packs is the queue, with at most 8 extracts. What is
//     done or has failed is kept until it is removed, or until there are more.
//  7. The query of a URL is in plan.json alone, which only the user of the node may read. No list,
//     event, log line or error has it.
//  8. In amnesia, and on a member that does not lead, there are no extracts.
//
// # Tasks and queues
//
//   - extractor, 1: reads extracts, one at a time, the oldest that is due first. It ends with a
//     sync.
//   - extract_turn, 1: extracts that are planned, HTTP
//   - extracts, watch: extracts begin or are removed, HTTP -> extractor
//
// # Lock order
//
// None. The mutexes are leaves.
package extract
