"""Long descriptions of all remark codes: printed by --explain, and the source of the table in docs/remarks.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """title: the remark in general terms. meaning: what it says about the program. helps: possible remedies."""

    title: str
    meaning: str
    helps: str = ""


# Codes of tensors that take no memory, or one slice: splitting them would gain nothing.
NEVER_IN_MEMORY = frozenset({"EX101", "EX102"})
# Codes of rewrites that a pass before the splitter refused: the tensor may be split all the same.
OTHER_REWRITES = frozenset({"EX401", "EX402", "EX403", "EX404", "EX405", "EX501", "EX502"})

EXPLANATIONS: dict[str, Explanation] = {
    "EX001": Explanation(
        "split over dimension D (N): T tiles of L",
        "The tensor, and the big tensors connected with it, now exist only in slices: a loop computes T slices of L "
        "indices, one after the other. `then` separates loops of which the second needs the complete reductions of "
        "the first.",
    ),
    "EX002": Explanation(
        "multiplied out into N sums of smaller tensors",
        "A sum over a big tensor, of squared differences or of products, is computed by dots and sums of the small "
        "tensors that the big one is computed from. The big tensor itself is never computed.",
    ),
    "EX003": Explanation(
        "multiplied in another order",
        "A product of several matrices is computed in an order that takes fewer operations, or needs no big tensor.",
    ),
    "EX004": Explanation(
        "added up from N elements, one by one",
        "A sum (or the largest or smallest) of few elements, each computed from tensors without the summed dimension: "
        "as exact as before, and no tensor with that dimension is computed for it. For a machine where float64 is "
        "slow, also a gradient's sum for each of the few elements that a weight has.",
    ),
    "EX005": Explanation(
        "recomputed by each step that reads it",
        "A loop stored the tensor step by step for another loop to read, as the gradient of a scan does. Now it is not "
        "stored: the reader computes its own step of it, from the carry of that step, which is stored instead or was "
        "already. This is what jax.checkpoint on the body of the scan does.",
    ),
    "EX006": Explanation(
        "computed by each step that reads it",
        "The tensor was computed for all steps of a loop at once, and each step read its own slice: a matrix that is "
        "repeated for every step of a scan, an elementwise function of its inputs, or a layer applied to them. Now "
        "each step computes its slice.",
    ),
    "EX007": Explanation(
        "reduced step by step by the loop that computes it",
        "A loop stored the tensor step by step, and its only use was a sum, product, maximum or minimum over the "
        "steps. Now the loop carries that result, and the tensor is not stored.",
    ),
    "EX008": Explanation(
        "not sorted: N elements are found by counting, in P passes",
        "All of the tensor was sorted, but only a few of its elements were read, as for a median. Now a loop finds "
        "them: each trip counts the elements below a few candidates, and so determines more bits of the elements that "
        "are read.",
    ),
    "EX009": Explanation(
        "factored block by block in the memory of the matrix",
        "XLA computes a Cholesky factor in a second matrix and with copies of parts of both. Now a loop over blocks "
        "overwrites the matrix with its factor.",
    ),
    "EX010": Explanation(
        "solved block by block in the memory of the right-hand sides",
        "XLA solves a triangular system with copies of half of the matrix, or of all right-hand sides. Now a loop "
        "over blocks overwrites the right-hand sides with the solution.",
    ),
    "EX011": Explanation(
        "not summed again: an earlier sum is the same",
        "A symmetric tensor, such as the kernel matrix of one set of points and the weights of its gradient, was "
        "summed along one dimension and along the other, which gives the same. Now it is summed once; for an "
        "antisymmetric tensor, the other sum is the negative.",
    ),
    "EX012": Explanation(
        "summed over a product that is already computed",
        "The gradient of a softmax sums each row of the softmax, weighted by its incoming gradient, which is a "
        "product. The product that has the softmax as an operand, such as attention's output, already contains that "
        "sum, except for a short sum. Now only the short sum is computed, and no complete row is needed first.",
    ),
    "EX013": Explanation(
        "recomputed before it is read again",
        "The tensor, such as an activation of a network, was computed early and read late, and took memory at the "
        "peak in between. With a memory limit it is computed a second time, from values that are kept, just before "
        "its late uses: what jax.checkpoint around some layers does, in a form that XLA:CPU does not undo.",
    ),
    "EX014": Explanation(
        "computed once for both halves, in N tiles: it is symmetric",
        "A symmetric matrix, such as the kernel matrix of one set of points, was computed to be multiplied by one or "
        "a few vectors. Now a loop computes tiles of one half of it, and uses each for its rows and, transposed, for "
        "its columns.",
    ),
    "EX015": Explanation(
        "the gradient of its pooling is computed by comparisons, without a scatter",
        "XLA:CPU stores the indices of the element that each window of a max pooling chose, and adds the cotangents "
        "one after the other. Now shifted slices of all windows are compared, and the cotangents shifted back: a few "
        "fused loops.",
    ),
    "EX016": Explanation(
        "added up in N loops, as soon as its terms are there",
        "XLA:CPU computes a sum of several tensors in one kernel, for which all of them wait: the gradients of a bias "
        "that all layers add, for example. With a memory limit each is now added in a loop of its own, which runs as "
        "soon as it can and adds in the memory of the sum.",
    ),
    "EX017": Explanation(
        "computed after another chain of ops, with the N that follow it",
        "XLA:CPU runs independent chains of ops side by side, a step of each in turn, and holds the tensors of all of "
        "them: those of an optimiser that orthogonalises one matrix after another, for example. With a memory limit "
        "the first ops of a chain wait until the chain before has ended.",
    ),
    "EX018": Explanation(
        "computed at the end: until then its memory is free for other tensors",
        "XLA puts temporary tensors into the memory of a result that is not yet written. The gradients of a network's "
        "last weights are written first, while the activations of all other layers still wait. With a memory limit, "
        "results that need only small tensors are computed once everything else is.",
    ),
    "EX019": Explanation(
        "overwritten once all others have read it: it is not copied",
        "A loop updates a tensor in place, such as donated weights, and other ops read the old values: a loss that "
        "adds up their squares, for example. XLA:CPU copies the tensor if nothing makes these run before the loop. "
        "With a memory limit the loop now waits for them.",
    ),
    "EX020": Explanation(
        "added up after its loop, from N steps of what its terms are computed from",
        "A loop added to the tensor in each step but did not read it otherwise, as the gradient of a solver adds to "
        "the gradient of its matrix. Now the loop stores the small tensors that the terms are computed from, and a "
        "second loop adds up the terms, tile by tile if it is split.",
    ),
    "EX101": Explanation(
        "XLA fuses it into its readers: it is never in memory",
        "The tensor exists only in the module: XLA computes its elements on the fly, wherever they are read.",
    ),
    "EX102": Explanation(
        "XLA fuses it into its readers: all of it that is ever in memory fits one slice",
        "What XLA does write of this chain of ops is small already.",
    ),
    "EX103": Explanation(
        "it is a result of this block",
        "The caller needs the complete tensor.",
        "Return something smaller.",
    ),
    "EX104": Explanation(
        "it is needed complete, and the loop writes it slice by slice",
        "It is a result, or the operand of an op that needs all of it. The ops that compute it were split.",
    ),
    "EX105": Explanation("it is empty", "There is nothing to split."),
    "EX106": Explanation("it has no dimension to split", "All its dimensions have size 1."),
    "EX107": Explanation(
        "its uses lead to no result",
        "No result depends on the tensor.",
    ),
    "EX201": Explanation(
        "an op needs one of its dimensions unsplit",
        "The op couples the elements along that dimension: a sort compares them, a solve or a Fourier transform mixes "
        "them, a gather may read any of them. Other dimensions may be split, and were, if that was worthwhile.",
        "If only the first few elements of a sort are read, use top_k; batch dimensions and right-hand sides of "
        "solves are always split.",
    ),
    "EX202": Explanation(
        "no splitting rule for the op",
        "exla-opt does not know how to compute the op slice by slice, so it leaves it alone.",
        "For your own custom call, give the rule: --op-rule='name=([i,j],[j])->([i])'.",
    ),
    "EX203": Explanation(
        "the op must not be split",
        "It draws random numbers that depend on their position, communicates with other devices, or has a side "
        "effect. An op that communicates is split where clearly less memory is needed and no tiles overlap. "
        "For a CPU or GPU, rng_bit_generator is rewritten as ops that can be split, if it uses Philox or "
        "Threefry and draws more than one number.",
        "Draw random numbers with jax.random, outside, or in slices.",
    ),
    "EX204": Explanation(
        "the op needs longer tiles",
        "A tile must hold at least as many elements as a top-k keeps.",
        "Raise --split-size.",
    ),
    "EX301": Explanation(
        "control flow carries it from one step to the next, or returns it unsplit",
        "A loop of the program carries the tensor, and could not be put inside a loop over slices of any of its "
        "dimensions: a step mixes the elements along each, needs a complete sum over them, or the loop runs until all "
        "elements are done and does not keep finished elements unchanged. If the remark names another op, that op is "
        "the obstacle. If each step stores a slice of the tensor, the line is the one that computes it; EX601 to "
        "EX606 say why the body of another loop does not recompute it.",
        "Carry the values that it is computed from instead, and recompute it in each step; jax.checkpoint around the "
        "body of a scan does that.",
    ),
    "EX302": Explanation(
        "the op updates a loop carry",
        "The tensor is an accumulator of a loop, or the stack that its steps write to: it is as large as the result "
        "that it becomes. The remark on the loop's result (EX301, EX601 to EX606) says why the loop was not split, or "
        "its stack not recomputed.",
        "jax.checkpoint around the body of a scan lets its gradient store less.",
    ),
    "EX303": Explanation(
        "the body of a loop uses it unsplit",
        "A loop's body reads the tensor, and could not compute it in slices either, or only with more than four "
        "times the arithmetic in every trip. The text after the colon says why the loop was not split together with "
        "it.",
        "Compute it in the body. If a scan stores it for its gradient, jax.checkpoint around the scan's body does "
        "that.",
    ),
    "EX304": Explanation(
        "an op uses it unsplit as well",
        "One use is split along this dimension and another needs all of the tensor, like the matrix in K @ K.",
    ),
    "EX305": Explanation(
        "splitting it would not save memory",
        "A tensor that it is computed from, or that is computed from it, is as big and stays; or all splits of the "
        "module together save nothing, and the module is left unchanged.",
    ),
    "EX306": Explanation(
        "a value computed from it is needed complete between two loops",
        "A big tensor would have to exist unsplit between two loops.",
    ),
    "EX307": Explanation(
        "the dimension is sliced, padded or concatenated at too many different offsets",
        "There are more than a few slices, pads or concatenations along the dimension.",
    ),
    "EX308": Explanation(
        "it would take N consecutive loops, which recompute most of it",
        "The reductions depend on each other, and each loop would recompute the big tensors before it: more than six "
        "times the work in all. Many loops alone are no reason, if each repeats little. Or the loops around it "
        "already repeat so much that the module would do more than six times its original arithmetic.",
    ),
    "EX309": Explanation(
        "a comparison for equality would need the exact bits that another loop computed",
        "The gradient of a maximum or minimum asks which elements equal it. If the maximum is taken along the split "
        "dimension, a second loop recomputes the elements, and XLA may round them differently. Two loops that make "
        "the same comparison may also disagree: the gradient of a clip asks which elements are at its bound. Asking "
        "which elements are not below their own maximum is the same comparison.",
        "Take the maximum along one dimension only, or use argmax and a gather. Minima along two dimensions whose "
        "gradients are only added are split one by one.",
    ),
    "EX310": Explanation(
        "--no-reassociate forbids it",
        "A sum of floating-point numbers would be computed tile by tile, or in another order.",
        "Leave the option out.",
    ),
    "EX311": Explanation(
        "the module is for several devices, and there is no program of one device",
        "exla-opt rewrites the program that one device runs on its shards, which Shardy determines. That is not "
        "possible where Shardy refuses the module or an op of it has no form on a part of a tensor.",
        "Export with the Shardy partitioner (jax's default); write the op that stands in the way with jax.shard_map.",
    ),
    "EX312": Explanation(
        "the devices would send more to each other",
        "The rewritten program would move more bytes between devices than the original, so the original is kept.",
        "Fix the shardings in the middle of the program with jax.lax.with_sharding_constraint.",
    ),
    "EX313": Explanation(
        "random numbers of jax.random, not split: another reason",
        "The tensor holds random bits of threefry, the generator of jax.random. Each slice could be drawn alone; the "
        "reason after the colon prevents that. Either their use needs all of them at once, as a sort for a "
        "permutation does, or another tensor is as big.",
        "Draw in slices, or fewer at a time: a key for each part, by jax.random.split or fold_in.",
    ),
    "EX401": Explanation(
        "not multiplied out: it is not a plain sum",
        "Only sums that start from zero become dots: no maximum, no product, no other start.",
    ),
    "EX402": Explanation(
        "not multiplied out: an op needs a tensor of its full shape as well",
        "The difference, or product, is used elsewhere too, so it would still be computed.",
    ),
    "EX403": Explanation(
        "not multiplied out: it is not a polynomial of smaller tensors",
        "It has an exponent other than 2, an op that is not a product or sum, a conversion that rounds, a factor of "
        "zero or infinity, or an input as big as the formula.",
    ),
    "EX404": Explanation(
        "not multiplied out: the expansion needs a tensor as big",
        "For example, one number for each pair of points.",
    ),
    "EX405": Explanation(
        "not multiplied out: its element type forbids it",
        "Complex numbers, booleans, or float16 in long sums, which would overflow elsewhere than before.",
        "Take real and imaginary parts apart; compute in float32 or bfloat16.",
    ),
    "EX501": Explanation(
        "not multiplied in another order: every product is rounded",
        "Floats of less than 32 bits round every intermediate tensor, and another order has other intermediate "
        "tensors.",
    ),
    "EX502": Explanation(
        "not summed over a product that is already computed: it is rounded differently",
        "The product was rounded to fewer digits than the sum, or one of the two multiplies in float16, which "
        "overflows elsewhere in another order.",
        "Compute in float32 or bfloat16.",
    ),
    "EX601": Explanation(
        "not recomputed: an op reads more of it than the slice of one step",
        "The steps of a loop write the tensor, and a loop reads it step by step; another op needs all of it, or reads "
        "a slice that no step writes.",
        "Reduce it inside the loop, or return less of it.",
    ),
    "EX602": Explanation(
        "not recomputed: the steps are not known",
        "The loop that writes it, or the one that reads it, has no counter that goes up to a constant in steps of one, "
        "or the index does not depend on the counter alone.",
        "Use lax.scan, or fori_loop with constant bounds.",
    ),
    "EX603": Explanation(
        "not recomputed: an op must not run twice",
        "It draws random numbers from a state, has a side effect or an order, or asks whether two numbers are equal; "
        "its result would have to be stored, and takes about as much memory. An op that would communicate again sends "
        "tensors to other devices, and the devices would send more.",
        "Draw random numbers with jax.random, which computes them from a key.",
    ),
    "EX604": Explanation(
        "not recomputed: storing what it is computed from takes as much memory",
        "The carries of the loop are as big as its stack, or the recomputed values raise the peak elsewhere.",
        "Let the loop carry less, or put a loop around several steps and jax.checkpoint on its body.",
    ),
    "EX605": Explanation(
        "not recomputed: a comparison for equality would need its exact bits",
        "The reader asks whether the tensor equals a number that was computed with it; recomputed it might differ in "
        "the last bit.",
    ),
    "EX606": Explanation(
        "not recomputed: no step writes its own slice",
        "A step writes more or less than one slice along the first dimension, writes it somewhere else, or the loop "
        "reads the tensor while it writes it.",
    ),
    "EX701": Explanation(
        "not found by counting: its comparator is not known to be a total order",
        "Few elements of a sorted tensor are read. The sort compares more than one tensor, values computed from the "
        "elements, or plain floats, among which a NaN is neither before nor after another number, so that the sort "
        "may leave it anywhere.",
        "jnp.sort and tf.sort have a total order.",
    ),
    "EX702": Explanation(
        "not found by counting: a result of the sort other than its keys is read",
        "The sort permutes another tensor along with its keys: the indices of the elements, for an argsort or the "
        "gradient of a sort. Only elements of the keys are found by counting.",
        "If a median needs no gradient, put jax.lax.stop_gradient around it.",
    ),
}


def explain(code: str) -> str | None:
    """The long description of a code; None for an unknown code."""
    found = EXPLANATIONS.get(code.upper())
    if found is None:
        return None
    helps = f"\n\nWhat helps: {found.helps}" if found.helps else ""
    return f"{code.upper()}: {found.title}\n\n{found.meaning}{helps}"
