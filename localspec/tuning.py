"""The tuned numbers of the controller and of placement, with unit and purpose; in brackets the tests that hold them.

Sizes that belong to one algorithm stand beside it: methods/copy.py, control/timing.py, value.py, candidates.py.
"""

# The loss account (account.py). [test_account, the bound in test_auto]
EPS = 0.02  # share of the time that drafting may lose
HEAD_START = 1.0  # plain passes that an answer may lose from its first pass on
READING = 0.15  # share of the time in which the target read the prompt that drafts may lose too [test_short_answers]
STAKE = 0.5  # share of what neither the prompt nor past gain gave that an exploring draft may cost
PLANNING = 0.01  # share of the time that looking for drafts may take while none pays [test_a_fast_target]
CREDIT = 200.0  # plain passes of past gain that may be lost again before drafting stops

# Prices (prices.py, timing.py). [test_prices, test_disturbed]
CLAMP = 3.0  # times the known price: the most that one pass teaches or is charged; more was an interruption
FASTER = 2.0  # times less than its price: such a pass shows that the machine got faster
NEW = 0.2  # weight of the newest pass in the price of its width
DOUBT = 1.15  # times the known price: what a pass may cost before it is begun
PADDED = 0.95  # of the price without them: less is noise
SHORT = 0.002  # seconds of a plain pass: below, padding does not gain what it costs
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 17, 24, 32, 33, 48, 64, 96, 128)  # rows that are timed
BUDGET = 1.0  # seconds of the first measurement of a pair: on two cores it shows 16 rows of a 1.5B [copies.py, cold]

# The value of a draft (value.py, candidates.py). [the worlds of test_auto]
DISCOUNT = 0.97  # weight of past passes in the rate of tokens, a pass later
WORTH = 0.1  # weight of the newest draft in what drafts are worth
HORIZON = 64  # passes in which a draft model's reading, or a change of width, is won back [test_short_answers]
EXPLORING = 0.005  # share of the time for drafts that do not pay, to see whether they do by now

# Measurements of plain decoding (schedule.py). [test_schedule]
BASELINE = 3  # plain passes at the start of an answer, where the price of one is not known
AGAIN = 64  # passes of an answer before two plain ones measure again
EVERY = 128  # passes from then on before two plain ones measure again
SPREAD = 8  # passes, and a quarter of those so far, between two places of plain ones under a method that was named
PATIENCE = 16  # passes with forced tokens before plain ones that are due are made all the same
MEASURING = 0.025  # share of the time that these may lose, beside the first place
NEAR = 128  # tokens of context, or a quarter of them, within which a measured plain pass holds
RECENT = 600.0  # seconds for which it holds

# Acceptance (acceptance.py). [test_acceptance]
PRIOR = 4.0  # tokens that the prior chance of acceptance is worth
COPY_PRIOR = 30.0  # copied tokens that the prior chance of a copy is worth
FADE = 0.998  # weight of earlier evidence of a chance when one more token is judged

# Placement (models/plan, session/placement.py, backends). [test_examples, test_placing]
ROLLBACK = 8  # tokens of a pass that a hybrid takes back in place: for each it keeps a state [test_stateful_targets]
DEFAULT_CTX = 4096  # tokens of a context where no size is asked for
SMALLEST_CTX = 512  # tokens: no smaller context is chosen
MARGIN_DEVICE = 0.07  # of a device's free memory: libraries' work space, fragments, other programs' windows
MARGIN_RAM = 0.05  # of the free main memory
LOW_BIT_ON_CPU = 3.2  # times the seconds a byte of four bits: of types of fewer on a processor [test_low_bit]
TINY_WEIGHTS = 32 << 20  # bytes of a model's weights below which one thread is fastest: a barrier costs as much
