"""The keys of the address. They are an interface, because people share links.

Those marked * belong to a widget bound to the address; the others are written by ``state``, because a link should carry
a run's id and not the label that a picker shows.

    run       the run on Masks, in focus on Drift, A   runs      the runs on Scores, Drift and Features, ids with
              on Compare; of whose experts Conflicts is            commas
    tower*    the tower of a network with several, or all
    ratio*    prune ratio of the picture of masks      shared*   whether all experts share one mask
    group*    order of the tensors                     by*       how kept shares are split
    expert    the chosen expert, or its task           tensor    the chosen tensor
    image     the chosen image, as task:split:place    act*      what is done to the chosen layer
    reach*    whether to it, its block, or its kind    given*    the expert that it is given back to
    factor*   by what it is scaled                     help*     where putting back is asked to help
    relative* accuracies relative to the experts'      present*  larger type, for a projector
    chain     the edits and the merge being built      experts   names of the experts being merged, with commas
    method    the method on Methods                    role*     methods of this role only
    needs*    methods that need this only              find*     methods with these words only
    view*     what Drift shows                         kind*     tensors of this kind only
    about*    what Conflicts shows                     cell*     what a cell of layer-isolated drift says
    density*  share kept before signs are counted      cut*      rank cut of the joint spaces
    signs*    what a cell of sign agreement says       won*      what the picture of the election shows
    against*  the method tested against the others     best*     the score that makes a point of it the best
    token*    features of the class token, or mean     distance* how drift is measured
    conflict* what a cell of removed conflicts says    overlap*  directions that both tasks of the case share
    energy*   of one task's inputs against the other's agreement* cosine of the case's task vectors
    compare*  what two experts are compared by         scope*    the whole model, or one layer
    first*    one expert of the chosen pair            second*   the other one
    direction* how the joint space joins matrices      drop*     prune ratio in the joint space
    sweep     the sweep on Sweeps, or "new"            point     the chosen point of it
    score*    what the map of a sweep shows            on        the benchmark, if not the server's
    subject*  the score that a point needs there       least*    how much of it, in percent
    look*     what Features shows                      map*      how its maps are drawn
    images*   the data set on Features                 classes*  of that data set only
    perplexity* of its t-SNE maps                      beside*   the expert that is shown beside the runs
    number*   how separability is measured             unit*     distances of features of unit length
    ranked*   each expert's entries, or all together   along*    what a cell of the joint space's energy says
    show*     what Scores shows                        merged*   the experts of its plug-in matrix and ablations
    front     the leading edit of the merges there     variant*  what the ablations show beside both
    over*     the images that Image counts by depth    asked*    what it counts of them
    donor*    whose tokens it puts in for all of them  cells*    what a cell of every data set says
    where*    the data set, and                        from*     the depth, whose images are listed
    intervals* accuracies there with their intervals   vectors*  how the case's task vectors are made
    word*     the explained words on Methods            beyond*  whether Methods shows figures beyond CLIP
    b         the run that Compare sets beside run     between*  what Compare shows of the two
    models    the user's set of models on Merge        shelf*    what Models & runs shows
    chosen    the runs selected there, with commas     outcome*  which of the two runs is right
    chart*    the chart of both runs on Compare        among*    whose images it counts
    guess*    what the first-order map shows
    learned*  what Learning shows                      moment*   the step of learning there
    see*      what Image shows                         seek*     the images that Image looks for
    head      whose classes Image asks for             at        the depth or block that it shows
    unit      on Image, an attention head              reference what Image compares runs with
    source*   how another benchmark is made on Models  experiment the published experiment there
              & runs
    bare      1 where the chart is alone in a frame    ground    "clear" for a frame without a ground
    controls  keys of the controls that stay when one  figure    the chart that is alone
              chart is alone, with commas
    draft     the secret token of the report, on all pages; links leave it out
    lesson    the lesson that stands beside the pages  step      the step of it, from 1
    did       which steps are done, as bits            said      the guesses and answers so far
    class     the code of a class whose guesses count  notes     only the notes of the step, for a second window
"""

from __future__ import annotations

from typing import Any

RUN, RUNS, CHAIN, EXPERTS, RATIO, SHARED = "run", "runs", "chain", "experts", "ratio", "shared"
TOWER = "tower"
GROUP, BY, EXPERT, TENSOR, RELATIVE, PRESENT = "group", "by", "expert", "tensor", "relative", "present"
METHOD, ROLE, NEEDS, FIND, RANKED, ALONG = "method", "role", "needs", "find", "ranked", "along"
VIEW, KIND, TOKEN, DISTANCE, NUMBER, UNIT = "view", "kind", "token", "distance", "number", "unit"
ABOUT, DENSITY, CUT, SIGNS, WON = "about", "density", "cut", "signs", "won"
CELL, CONFLICT, OVERLAP, ENERGY, AGREEMENT, VECTORS = "cell", "conflict", "overlap", "energy", "agreement", "vectors"
AGAINST, COMPARE, SCOPE, FIRST, SECOND = "against", "compare", "scope", "first", "second"
SWEEP, POINT, SCORE, SUBJECT, LEAST, BEST = "sweep", "point", "score", "subject", "least", "best"
WORD, BEYOND = "word", "beyond"
LOOK, MAP, IMAGES, CLASSES, PERPLEXITY, BESIDE = "look", "map", "images", "classes", "perplexity", "beside"
FIGURE, BARE, CONTROLS, GROUND = "figure", "bare", "controls", "ground"
OVER, ASKED, DONOR, CELLS, WHERE, FROM = "over", "asked", "donor", "cells", "where", "from"
ACT, REACH, GIVEN, FACTOR, HELP, GUESS = "act", "reach", "given", "factor", "help", "guess"
SHOW, MERGED, FRONT, VARIANT, INTERVALS = "show", "merged", "front", "variant", "intervals"
OTHER, BETWEEN, CHART, AMONG, OUTCOME = "b", "between", "chart", "among", "outcome"
MODELS, SHELF, CHOSEN, ON, DIRECTION, DROP = "models", "shelf", "chosen", "on", "direction", "drop"
LEARNED, MOMENT = "learned", "moment"
LESSON, STEP, DID, SAID, CLASS, NOTES = "lesson", "step", "did", "said", "class", "notes"
SOURCE, EXPERIMENT = "source", "experiment"
SEE, SEEK, HEAD, AT, REFERENCE = "see", "seek", "head", "at", "reference"
BIND: Any = "query-params"
