package party

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/watched"
	"github.com/kielgo/kiel/session"
)

// recordHash is the first 160 bits of a record's SHA-256. Two records with one hash take 2^80 tries to find, and then they only
// make members disagree, as everybody can who may write into the directories. The zero value is no hash.
type recordHash [20]byte

func hashOf(data []byte) (h recordHash) {
	sum := sha256.Sum256(data)
	copy(h[:], sum[:])
	return h
}

// entry is what the name of a znode in the directory of records says of a member.
type entry struct {
	hash    recordHash
	session int64 // that owns the member's znode and the entry
}

// entryName returns the name of a member's znode in the directory of records: the hash, written with letters, digits, - and _,
// the session, and the member's name as it is, which may be any name of a znode.
func entryName(e entry, member string) string { return string(e.appendTo(nil)) + member }

// appendTo appends what stands before the member's name.
func (e entry) appendTo(b []byte) []byte {
	b = append(base64.RawURLEncoding.AppendEncode(b, e.hash[:]), '.')
	return append(strconv.AppendUint(b, uint64(e.session), 16), '.')
}

// parseEntry parses what entryName has written. ok is false for any other name.
func parseEntry(name string) (member string, e entry, ok bool) {
	hash, rest, _ := strings.Cut(name, ".")
	session, member, _ := strings.Cut(rest, ".")
	if len(hash) != base64.RawURLEncoding.EncodedLen(len(e.hash)) || len(session) > 16 || member == "" {
		return "", entry{}, false
	}
	_, hashErr := base64.RawURLEncoding.Decode(e.hash[:], []byte(hash))
	id, err := strconv.ParseUint(session, 16, 64)
	e.session = int64(id)
	if hashErr != nil || err != nil || id == 0 {
		return "", entry{}, false
	}
	var buf [64]byte
	if string(e.appendTo(buf[:0])) != name[:len(name)-len(member)] { // written in another way
		return "", entry{}, false
	}
	return member, e, true
}

// parseEntries returns the entries by member. A member with two entries has none: which one is right shows only its record.
func parseEntries(names []string) map[string]entry {
	entries := make(map[string]entry, len(names))
	var twice []string
	for _, name := range names {
		member, e, ok := parseEntry(name)
		if !ok {
			continue
		}
		if _, there := entries[member]; there {
			twice = append(twice, member)
		}
		entries[member] = e
	}
	for _, member := range twice {
		delete(entries, member)
	}
	return entries
}

// recordsDir is what a Party knows of the directory of records, and of the records themselves.
type recordsDir struct {
	path    string         // "" if there is no such directory
	watch   *session.Watch // of the last listing; nil before, and while the directory can't be listed
	stat    session.Stat   // the directory's metadata at the last listing
	names   []string       // the names at the last listing
	entries map[string]entry
	mendAt  time.Time // when this member's entry may be mended next

	known  map[recordHash][]byte // records by their hash, which does not depend on sessions and servers
	misfit map[recordHash]bool   // hashes that no member's record has, as the directories are; nil for none
}

// listRecords reads the directory of records, unless it has not changed. It comes after the listing of the members: a member that
// joins in between is not among the members yet, and the watches of both directories show that.
// While there is no member but this one, nobody needs the entry, and the watch alone tells of a change.
func (l *loop) listRecords(ctx context.Context, alone bool) error {
	d := &l.records
	if d.path == "" {
		return nil
	}
	if d.watch != nil && open(d.watch) {
		if alone {
			return nil
		}
		exists, now, err := l.inc.Exists(ctx, d.path)
		switch {
		case err != nil && !unreadable(ctx, err):
			return err
		case err == nil && exists && watched.SameChildren(now, d.stat):
			return nil
		}
		// The listing says what the servers refuse, which they may do since the last one: no watch shows that.
	}
	d.unwatch()
	d.misfit = nil
	names, stat, watch, err := l.inc.ChildrenLasting(ctx, d.path)
	d.watch, d.stat = watch, stat
	switch {
	case err == nil:
		d.names, d.entries = names, parseEntries(names)
		l.errs.OK(kindRecords, "")
		return nil
	case errors.Is(err, session.ErrNoNode):
	case unreadable(ctx, err):
		l.refusedRecords(err)
	default:
		return err
	}
	d.names, d.entries = nil, nil // each member is read
	return nil
}

// refusedRecords reports that the servers refuse the directory of records, without which the Party does as well.
func (l *loop) refusedRecords(err error) { l.errs.FailedWarn(kindRecords, "", err) }

func (d *recordsDir) unwatch() {
	if d.watch != nil {
		d.watch.Stop()
		d.watch = nil
	}
}

// changed returns a channel that is closed when the directory has changed, nil if it is not watched.
func (d *recordsDir) changed() <-chan struct{} {
	if d.watch == nil {
		return nil
	}
	return d.watch.C()
}

// byHash returns the members among the names whose records have a hash that l.records knows, after it has read the records that
// it did not know. A member's own znode is read in any case, and so are members without an entry, and those whose hash no
// member's record has.
func (l *loop) byHash(ctx context.Context, names []string) ([]Member, error) {
	d := &l.records
	holders := make(map[recordHash][]string)
	var unknown []recordHash
	for _, name := range names {
		e, ok := d.entries[name]
		if !ok || name == l.name {
			continue
		}
		if _, known := d.known[e.hash]; !known && !d.misfit[e.hash] {
			if holders[e.hash] == nil {
				unknown = append(unknown, e.hash)
			}
			holders[e.hash] = append(holders[e.hash], name)
		}
	}
	if err := l.readRecords(ctx, unknown, holders); err != nil {
		return nil, err
	}
	members := make([]Member, 0, len(names))
	known := map[recordHash][]byte{hashOf(l.data): l.data}
	for _, name := range names {
		e, ok := d.entries[name]
		if !ok || name == l.name {
			continue
		}
		if data, ok := d.known[e.hash]; ok {
			known[e.hash] = data
			members = append(members, Member{Name: name, Session: e.session, Data: data, hash: e.hash})
		}
	}
	d.known = known // forgets what nobody has any more
	return members, nil
}

// readRecords reads each record from one of its holders. It tries them all: whoever reads the same directories finds the same.
// The loop keeps the records that were read, also when an error is returned.
func (l *loop) readRecords(ctx context.Context, hashes []recordHash, holders map[recordHash][]string) error {
	keys := make([]string, len(hashes))
	for i := range hashes {
		keys[i] = string(hashes[i][:])
	}
	readings, err := readEach(ctx, keys, func(ctx context.Context, key string) (reading, error) {
		hash := recordHash([]byte(key))
		from := holders[hash]
		first := rand.IntN(len(from)) // not all members read the same znode
		for i := range from {
			r, err := readOne(ctx, l.inc, l.path, from[(first+i)%len(from)])
			if err != nil || r.exists && r.Err == nil && hashOf(r.Data) == hash {
				return r, err
			}
		}
		return reading{}, nil
	})
	for i, r := range readings {
		switch {
		case r.exists:
			l.records.known[hashes[i]] = r.Data
		case err == nil:
			if l.records.misfit == nil {
				l.records.misfit = map[recordHash]bool{}
			}
			l.records.misfit[hashes[i]] = true // until one of the directories changes
		}
	}
	return err
}

// ownEntry returns the path of this member's entry.
func (l *loop) ownEntry() string {
	return session.Join(l.records.path, entryName(entry{hashOf(l.data), l.sid}, l.name))
}

// mendEntry creates this member's entry if it is missing, as when somebody has deleted it, or when the servers refused it as the
// member joined. It deletes entries that this session has left behind for another record. It acts once per session timeout at
// most.
func (l *loop) mendEntry(ctx context.Context) error {
	own := l.ownEntry()
	missing, stale := true, []string(nil)
	for _, name := range l.records.names {
		if !strings.HasSuffix(name, l.name) {
			continue
		}
		switch member, e, ok := parseEntry(name); {
		case !ok || member != l.name || e.session != l.sid:
		case session.Join(l.records.path, name) == own:
			missing = false
		default:
			stale = append(stale, session.Join(l.records.path, name))
		}
	}
	if !missing && len(stale) == 0 || time.Now().Before(l.records.mendAt) {
		return nil
	}
	l.records.mendAt = time.Now().Add(l.inc.Timeout())
	var err error
	if missing {
		_, err = l.inc.Create(ctx, own, l.info, session.Ephemeral)
		if errors.Is(err, session.ErrNoNode) {
			if err = l.inc.EnsurePath(ctx, l.records.path); err == nil {
				_, err = l.inc.Create(ctx, own, l.info, session.Ephemeral)
			}
		}
	}
	for _, path := range stale {
		if err == nil {
			err = l.inc.Delete(ctx, path, -1)
		}
	}
	if errors.Is(err, session.ErrNodeExists) || errors.Is(err, session.ErrNoNode) {
		return nil // the next look shows what there is
	}
	if unreadable(ctx, err) {
		l.refusedRecords(err)
		return nil
	}
	return err
}

// Entry is a member's znode in the directory [Options].Records.
type Entry struct {
	Member  string
	Session int64  // the ZooKeeper session that owns the member's znode, as the member says
	Info    []byte // Options.Info; nil if it can't be read
}

// ReadEntries reads the entries of these members in the directory records once, as they are now or later: one for each member at
// most, which has the session of the member's znode and fits its record, as [Read] has returned both. It reads none of the other
// entries, however many somebody has made. It creates nothing and watches nothing. It blocks while it sends a Sync, lists the
// entries and reads them, 16 at a time. Errors wrap the session's, ErrNoNode if there is no directory, or the cause of ctx's end.
func ReadEntries(ctx context.Context, inc *session.Incarnation, records string, members []Member) ([]Entry, error) {
	entries, err := readEntries(ctx, inc, records, members)
	if err != nil {
		return nil, operr.New("party", "read", records, err)
	}
	return entries, nil
}

func readEntries(ctx context.Context, inc *session.Incarnation, records string, members []Member) ([]Entry, error) {
	if err := inc.Sync(ctx, records); err != nil {
		return nil, err
	}
	names, _, err := inc.Children(ctx, records)
	if err != nil {
		return nil, err
	}
	names = entriesOf(members, names)
	readings, err := readEach(ctx, names, func(ctx context.Context, name string) (reading, error) { return readOne(ctx, inc, records, name) })
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, r := range readings {
		if r.exists {
			member, e, _ := parseEntry(r.Name)
			entries = append(entries, Entry{Member: member, Session: e.session, Info: r.Data})
		}
	}
	return entries, nil
}

// entriesOf returns the names that are the entries of those members, one for each at most. That of a member whose record can't be
// read fits by the session alone.
func entriesOf(members []Member, names []string) (entries []string) {
	byName := make(map[string]*Member, len(members))
	for i := range members {
		byName[members[i].Name] = &members[i]
	}
	for _, name := range names {
		member, e, ok := parseEntry(name)
		if m := byName[member]; ok && m != nil && e.session == m.Session && (m.Err != nil || e.hash == hashOf(m.Data)) {
			entries = append(entries, name)
			delete(byName, member)
		}
	}
	return entries
}
