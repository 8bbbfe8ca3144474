package queue

import "context"

// base is what both kinds of queues have.
type base struct {
	dir directory
}

// Put puts a value behind all values of the same priority. Priorities are between 0 and 999; values of lower ones are taken
// first. Put returns the path of the entry. If the error wraps [session.ErrUncertain] the value may or may not be in the queue;
// otherwise it is not. The error wraps [session.ErrNodeExists] while an entry that somebody made by name has the next sequence
// number, and [session.ErrTooLarge] if the value does not fit a request: then nothing was sent.
func (q *base) Put(ctx context.Context, value []byte, priority int) (string, error) {
	paths, err := q.dir.put(ctx, [][]byte{value}, priority)
	if err != nil {
		return "", q.dir.wrap(ctx, "put", err)
	}
	return paths[0], nil
}

// PutAll puts values in their order, all of them or none. All together must fit one request. Errors are those of Put.
func (q *base) PutAll(ctx context.Context, values [][]byte, priority int) ([]string, error) {
	paths, err := q.dir.put(ctx, values, priority)
	if err != nil {
		return nil, q.dir.wrap(ctx, "put", err)
	}
	return paths, nil
}

// Len returns how many entries there are. Entries of a LockingQueue that are held count. A queue whose znode is missing has none.
func (q *base) Len(ctx context.Context) (int, error) {
	n, err := q.dir.length(ctx)
	if err != nil {
		return 0, q.dir.wrap(ctx, "len", err)
	}
	return n, nil
}
