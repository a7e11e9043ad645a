// Strips of time: which member had a partition, from its past moves and its present member.

/**
 * Return the pieces of a partition's strip, in order, within [from, to].
 *
 * `moves`: the newest last. A piece has a member, or is the pause of a move: the time in which nobody
 * consumed the partition. What was before the first move that is kept is not known further back.
 */
export function piecesOf(moves, member, from, to) {
  const pieces = [];
  let begin = from;
  const add = (piece, until) => {
    const end = Math.min(to, Math.max(begin, until));
    if (end > begin || piece.move) pieces.push({ ...piece, from: begin, to: end });
    begin = Math.max(begin, end);
  };
  for (const move of moves) {
    if (move.at_ms < from) continue;
    const pause = move.pause_ms ?? 0;
    add({ member: move.source ?? "" }, move.at_ms - pause);
    add({ member: "", move }, move.at_ms);
  }
  const last = moves.at(-1);
  add({ member: last ? (last.target ?? "") : member }, to);
  return pieces;
}
