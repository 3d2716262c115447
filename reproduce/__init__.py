"""The paper's evaluation: every figure of its section VIII beside its numbers; `make reproduce`.

reported        the paper's numbers
settings        the frozen settings, and the graphs
runs            the run behind each figure, and how it is computed and stored
epoch_cost      simulated time of an epoch, by the model of `device_model`
evaluation      scores and rows of one graph
figures         the rows and plots of every figure
tables, page    what is shown
__main__        the command
"""
